// SPDX-License-Identifier: Apache-2.0
// What the generated functions of meron.i stand on, the same for every language: the loaded
// library, failures, memory with its size, and the object that the library calls back. How a
// language spells text, memory and exceptions is in <language>/<language>.i.

%{
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace meron_swig {

// What a call of the library failed with. Thrown by the functions of meron.i and caught by the
// wrapper around each of them (%exception), so it never leaves this module.
struct failure {
  int32_t code;
  std::string message, operation, subject, advice;
  int32_t rank, peer;
};

// ---- The library --------------------------------------------------------------------------------

// Filled by load_library. The module is not linked with the library: which one is loaded, and
// whether its version fits, is decided before any of its functions is called.
struct functions {
#define MERON_SWIG_MEMBER(name) decltype(&::name) name;
  MERON_SWIG_FUNCTIONS(MERON_SWIG_MEMBER)
#undef MERON_SWIG_MEMBER
};
static functions table;
static bool loaded = false;
static std::string problem;

static const functions &api() {
  if (!loaded)
    throw failure{MERON_E_STATE, "libmeron is not loaded: call load_library with its path first",
                  "load_library", "", "Call load_library with the path of libmeron.so.",
                  MERON_RANK_NONE, MERON_RANK_NONE};
  return table;
}

// The rule of meron_version: equal major (before 1.0 also minor) numbers, and not older.
static bool compatible(uint32_t found) {
  const int bits = MERON_VERSION >> 16 ? 16 : 8;
  return found >> bits == static_cast<uint32_t>(MERON_VERSION) >> bits && found >= MERON_VERSION;
}

static bool load(const char *path) {
  // NODELETE: finalizers may run after everything else, and threads may be inside of it.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    problem = dlerror();
    return false;
  }
  functions found = {};
  const char *missing = nullptr;
#define MERON_SWIG_RESOLVE(name)                                           \
  found.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!found.name && !missing) missing = #name;
  MERON_SWIG_FUNCTIONS(MERON_SWIG_RESOLVE)
#undef MERON_SWIG_RESOLVE
  if (found.meron_version && found.meron_version_string && !compatible(found.meron_version()))
    problem = std::string("it is version ") + found.meron_version_string() +
              ", but this binding needs " + std::to_string(MERON_VERSION_MAJOR) + "." +
              std::to_string(MERON_VERSION_MINOR) + "." + std::to_string(MERON_VERSION_PATCH) +
              " or a later one that is compatible with it: install the binding and the library "
              "from one release";
  else if (missing)
    problem = std::string("it is no libmeron, or a damaged one: it lacks ") + missing;
  else
    loaded = true;
  if (loaded)
    table = found;
  else
    dlclose(library);
  return loaded;
}

// ---- Failures -----------------------------------------------------------------------------------

// The place for a call's error object, which it frees.
class error_slot {
 public:
  error_slot() = default;
  error_slot(const error_slot &) = delete;
  ~error_slot() {
    if (error_) table.meron_error_free(error_);
  }
  operator meron_error **() { return &error_; }

  // The status of a call that did not fail; throws what the others failed with.
  int32_t check(meron_status status) const {
    if (status >= 0) return status;
    if (!error_)  // the library found no memory for an error object
      throw failure{status, table.meron_status_name(status), "", "", "", MERON_RANK_NONE,
                    MERON_RANK_NONE};
    throw failure{status,
                  table.meron_error_message(error_),
                  table.meron_error_operation(error_),
                  table.meron_error_subject(error_),
                  table.meron_error_advice(error_),
                  table.meron_error_rank(error_),
                  table.meron_error_peer(error_)};
  }

 private:
  meron_error *error_ = nullptr;
};

static failure argument(const std::string &message) {
  return failure{MERON_E_ARGUMENT, message, "", "", "", MERON_RANK_NONE, MERON_RANK_NONE};
}

// ---- Arguments ----------------------------------------------------------------------------------

// Memory of the caller, from one buffer object of the language; null with 0 bytes for none.
struct readable_memory {
  const void *data;
  size_t bytes;
};
struct writable_memory {
  void *data;
  size_t bytes;
};
// Memory of the library, handed out.
struct visible_memory {
  void *data;
  size_t bytes;
  bool writable;
};
// Integers of the caller; handles are passed as such.
struct int32_array {
  const int32_t *items;
  size_t count;
};
struct int64_array {
  const int64_t *items;
  size_t count;
};

static size_t length_of(const char *text) { return text ? std::strlen(text) : 0; }

// How many elements of a dtype there are in some bytes. (Of an unknown dtype, which the library
// refuses, any number.)
static size_t elements(size_t bytes, int32_t dtype) {
  const size_t size = api().meron_dtype_size(dtype);
  if (size && bytes % size)
    throw argument(std::to_string(bytes) + " bytes are no whole number of elements of " +
                   std::to_string(size) + " bytes");
  return size ? bytes / size : bytes;
}

// A number that C takes without a sign. An options field may keep its initial value, which such as
// UINT64_MAX ("no limit") is below 0 here.
template <class Unsigned, class Signed>
static Unsigned unsigned_of(Signed value, const char *name, Unsigned initial = 0) {
  const Unsigned out = static_cast<Unsigned>(value);
  if (value < 0 && out != initial)
    throw argument(std::string(name) + " must be 0 or more, not " + std::to_string(value));
  return out;
}

// An options struct with the library's initial value; `given` is what the function takes besides.
template <class Struct, class... Rest, class... Given>
static Struct initial(meron_status (*init)(Struct *, size_t, Rest...), Given... given) {
  Struct out;
  error_slot error;
  error.check(init(&out, sizeof out, given..., error));
  return out;
}

}  // namespace meron_swig
%}

%include <stdint.i>

// Many languages have no unsigned numbers: counts, sizes and handles are signed ones.
%apply int32_t { uint32_t };
%apply int64_t { uint64_t, size_t };

// The library allocated what a function hands out as new text.
%typemap(newfree) char * "meron_swig::api().meron_string_free($1);"

namespace meron_swig {
struct readable_memory;
struct writable_memory;
struct visible_memory;
struct int32_array;
struct int64_array;
}

// Calls keep a lock such as Python's, unless meron.i says of one that it may block.
%feature("nothread");

#if defined(SWIGJAVA)
%include "java/java.i"
#elif defined(SWIGPYTHON)
%include "python/python.i"
#else
#error "There is no <language>/<language>.i for this language: see docs/bindings/making_others.md"
#endif

// ---- What the library calls -----------------------------------------------------------------------

%feature("director") meron_swig::callbacks;
%feature("nothread", "0") meron_swig::callbacks::log;
%feature("nothread", "0") meron_swig::callbacks::should_stop;

%inline %{
namespace meron_swig {

/**
 * What a context calls while it is open: override the methods. They may be called on any thread
 * that is inside a call, may only look and release, and nothing that they throw passes through it.
 * The object must live until the context is closed.
 */
class callbacks {
 public:
  /** With logs, messages go to log(); without, the library writes warnings to stderr. */
  explicit callbacks(bool logs) : logs_(logs) {}
  virtual ~callbacks() {}

  /** Receives a log message. Level: MERON_LOG_ERROR, _WARNING or _INFO. */
  virtual void log(int32_t level, const char *message) {
    (void)level, (void)message;
  }

  /** Asked about ten times a second while a call waits; true ends the wait. */
  virtual bool should_stop() { return false; }

#ifndef SWIG
  void connect(meron_context_options &options) {
    if (logs_) {
      options.log = on_log;
      options.log_user = this;
    }
    options.should_stop = on_should_stop;
    options.should_stop_user = this;
  }
#endif

 private:
#ifndef SWIG
  static void on_log(void *self, meron_log_level level, const char *message, size_t) noexcept {
    try {
      static_cast<callbacks *>(self)->log(level, message);
    } catch (...) {  // the language's part has reported it
    }
  }
  // What fails to answer ends the wait: a caller who asked to be asked is not ignored.
  static int32_t on_should_stop(void *self) noexcept {
    try {
      return static_cast<callbacks *>(self)->should_stop() ? 1 : 0;
    } catch (...) {
      return 1;
    }
  }
#endif
  bool logs_;
};

/**
 * Loads libmeron from a path, or by a name that the system's loader looks up. False when it cannot
 * be loaded or does not fit: library_problem() says why. Once loaded it stays.
 */
inline bool load_library(const char *path) { return loaded || load(path); }

/** Why load_library returned false. */
inline const char *library_problem() { return problem.c_str(); }

/**
 * Whether an operation that nobody waits for any more has ended, well or not. Takes no error: a failure
 * counts as not reported yet.
 */
inline bool abandoned_future_ended(int64_t future) {
  const ::meron_future handle{static_cast<uint64_t>(future)};
  return api().meron_future_poll(handle, nullptr) != MERON_IN_PROGRESS;
}

}  // namespace meron_swig
%}

// ---- Memory that the library hands out --------------------------------------------------------------

%extend meron_view {
  /** Bytes of this memory, not copied; valid as long as the function that gave the view says. */
  meron_swig::visible_memory memory(int64_t first, int64_t bytes) const {
    const uint64_t all = $self->count * meron_swig::api().meron_dtype_size($self->dtype);
    const uint64_t begin = static_cast<uint64_t>(first), length = static_cast<uint64_t>(bytes);
    if (begin > all || length > all - begin)
      throw meron_swig::argument("bytes " + std::to_string(first) + " to " +
                                 std::to_string(first + bytes) + " of a view of " +
                                 std::to_string(all));
    return {static_cast<char *>($self->data) + begin, length, $self->writable != 0};
  }
  /** Where this memory is: of the device's where the view is in it. */
  int64_t address() const { return reinterpret_cast<int64_t>($self->data); }
}

%extend meron_io_buffer_info {
  /** Bytes of this memory, not copied; valid until meron_io_buffer_release. */
  meron_swig::visible_memory memory(int64_t first, int64_t bytes) const {
    const uint64_t all = $self->bytes;
    const uint64_t begin = static_cast<uint64_t>(first), length = static_cast<uint64_t>(bytes);
    if (begin > all || length > all - begin)
      throw meron_swig::argument("bytes " + std::to_string(first) + " to " +
                                 std::to_string(first + bytes) + " of a buffer of " +
                                 std::to_string(all));
    return {static_cast<char *>($self->data) + begin, length, true};
  }
  /** Address of this memory. */
  int64_t address() const { return reinterpret_cast<int64_t>($self->data); }
}

%include "transport.i"
%include "dlpack.i"
%include "checkpoint.i"
