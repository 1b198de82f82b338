// SPDX-License-Identifier: Apache-2.0
// How Python spells text, memory and exceptions. Memory is any object of the buffer protocol.

%{
namespace meron_swig {

static PyObject *error_type = nullptr;  // meron_swig.Error

// An object's bytes as long as the call lasts. (What the library uses for longer the caller keeps.)
class python_buffer {
 public:
  ~python_buffer() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  template <class Memory>
  bool take(PyObject *object, bool writable, Memory *out) {
    if (object == Py_None) {
      *out = {nullptr, 0};
      return true;
    }
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &view_, flags)) return false;
    *out = {view_.buf, static_cast<size_t>(view_.len)};
    return true;
  }

 private:
  Py_buffer view_ = {};
};

// The integers of a sequence as long as the call lasts.
template <class Item>
class python_integers {
 public:
  template <class Array>
  bool take(PyObject *object, Array *out) {
    PyObject *sequence = PySequence_Fast(object, "a sequence of integers is needed");
    if (!sequence) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); ++i)
      items_.push_back(
          static_cast<Item>(PyLong_AsLongLong(PySequence_Fast_GET_ITEM(sequence, i))));
    Py_DECREF(sequence);
    *out = {items_.data(), items_.size()};
    return !PyErr_Occurred();
  }

 private:
  std::vector<Item> items_;
};

static void python_raise(const failure &failed) {
  PyObject *made = PyObject_CallFunction(error_type, "s", failed.message.c_str());
  if (!made) return;
  const struct {
    const char *name;
    PyObject *value;
  } fields[] = {{"code", PyLong_FromLong(failed.code)},
                {"message", PyUnicode_FromString(failed.message.c_str())},
                {"operation", PyUnicode_FromString(failed.operation.c_str())},
                {"subject", PyUnicode_FromString(failed.subject.c_str())},
                {"advice", PyUnicode_FromString(failed.advice.c_str())},
                {"rank", PyLong_FromLong(failed.rank)},
                {"peer", PyLong_FromLong(failed.peer)}};
  for (const auto &field : fields)
    if (field.value) {
      PyObject_SetAttrString(made, field.name, field.value);
      Py_DECREF(field.value);
    }
  if (!PyErr_Occurred()) PyErr_SetObject(error_type, made);
  Py_DECREF(made);
}

}  // namespace meron_swig
%}

%init %{
  meron_swig::error_type = PyErr_NewExceptionWithDoc(
      "meron_swig.Error",
      "An error of the library: code, message, operation, subject, advice, rank, peer.", nullptr,
      nullptr);
  if (!meron_swig::error_type || PyModule_AddObjectRef(m, "Error", meron_swig::error_type)) {
#if PY_VERSION_HEX >= 0x03000000
    return nullptr;
#endif
  }
%}
%pythoncode %{
Error = _meron_swig.Error
%}

%exception {
  try {
    $action
  } catch (const meron_swig::failure &failed) {
    meron_swig::python_raise(failed);
    SWIG_fail;
  } catch (const std::bad_alloc &) {
    PyErr_NoMemory();
    SWIG_fail;
  }
}

// What a callback raises is reported as such, and goes no further than the trampoline.
%feature("director:except") {
  if ($error) {
    PyErr_WriteUnraisable(Py_None);
    throw meron_swig::argument("a callback failed");
  }
}

// SWIG's own typemap would cut a text at its first NUL.
%typemap(in) const char * {
  $1 = nullptr;
  if ($input != Py_None) {
    Py_ssize_t size = 0;
    $1 = const_cast<char *>(PyUnicode_AsUTF8AndSize($input, &size));
    if (!$1) SWIG_fail;
    if (static_cast<size_t>(size) != std::strlen($1)) {
      PyErr_SetString(PyExc_ValueError, "a text holds a NUL character");
      SWIG_fail;
    }
  }
}
%typemap(freearg) const char * ""

%typemap(in) meron_swig::readable_memory (meron_swig::python_buffer buffer) {
  if (!buffer.take($input, false, &$1)) SWIG_fail;
}
%typemap(in) meron_swig::writable_memory (meron_swig::python_buffer buffer) {
  if (!buffer.take($input, true, &$1)) SWIG_fail;
}
%typemap(in) meron_swig::int32_array (meron_swig::python_integers<int32_t> items) {
  if (!items.take($input, &$1)) SWIG_fail;
}
%typemap(in) meron_swig::int64_array (meron_swig::python_integers<int64_t> items) {
  if (!items.take($input, &$1)) SWIG_fail;
}
%typemap(typecheck, precedence=SWIG_TYPECHECK_POINTER)
  meron_swig::readable_memory, meron_swig::writable_memory, meron_swig::int32_array,
  meron_swig::int64_array "$1 = 1;"
%typemap(out) meron_swig::visible_memory {
  $result = PyMemoryView_FromMemory(static_cast<char *>($1.data), Py_ssize_t($1.bytes),
                                    $1.writable ? PyBUF_WRITE : PyBUF_READ);
}
%typemap(directorin) meron_swig::visible_memory {
  $input = PyMemoryView_FromMemory(static_cast<char *>($1.data), Py_ssize_t($1.bytes),
                                   $1.writable ? PyBUF_WRITE : PyBUF_READ);
}
%typemap(in) meron_swig::visible_memory (meron_swig::python_buffer buffer) {
  if (!buffer.take($input, false, &$1)) SWIG_fail;
}
