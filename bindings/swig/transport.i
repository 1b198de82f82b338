// SPDX-License-Identifier: Apache-2.0
// A transport of the caller's own: a class whose methods are the functions of meron_transport.

// The library calls these without the lock of a language such as Python: each takes it.
%feature("director") meron_swig::custom_transport;
%feature("nothread", "0") meron_swig::custom_transport::send;
%feature("nothread", "0") meron_swig::custom_transport::receive;
%feature("nothread", "0") meron_swig::custom_transport::test;
%feature("nothread", "0") meron_swig::custom_transport::cancel;
%feature("nothread", "0") meron_swig::custom_transport::idle;
%feature("nothread", "0") meron_swig::custom_transport::alive;
%feature("nothread", "0") meron_swig::custom_transport::closed;

%inline %{
namespace meron_swig {

/**
 * How bytes move between ranks that share no memory: override the methods. meron/transport.h says
 * what they must keep to; above all none blocks, but idle, and none calls the library. Nothing that
 * they throw passes through it. The object serves one context, and must live until that is closed.
 */
class custom_transport {
 public:
  /** The name is for messages; null: "custom". A message has at most max_message bytes; 0: any. */
  custom_transport(const char *name, int64_t max_message)
      : named_(name != nullptr), name_(name ? name : ""), max_message_(max_message) {}
  virtual ~custom_transport() {}

  /**
   * Starts to send a message, which stays as it is until the request is done or cancelled. Returns
   * a number of 0 or more for the request, -1 when it cannot be taken now (the same will be asked
   * again), or an error: MERON_E_IO, for example.
   */
  virtual int64_t send(int32_t peer, int64_t tag, visible_memory message) = 0;

  /** Starts to receive a message into a place of at least its size. Otherwise as send. */
  virtual int64_t receive(int32_t peer, int64_t tag, visible_memory place) = 0;

  /** The bytes of the request's message once it is done, -1 before, or an error. */
  virtual int64_t test(int64_t request) = 0;

  /** Gives a request up: its memory must not be touched once this returns. */
  virtual void cancel(int64_t request) = 0;

  /** Returns when something may have happened, or after so many nanoseconds. */
  virtual void idle(int64_t timeout_ns) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(timeout_ns, 1000000)));
  }

  /** Whether a rank is still there: false only if it is known to be gone. */
  virtual bool alive(int32_t peer) {
    (void)peer;
    return true;
  }

  /** No other method is called any more. */
  virtual void closed() {}

#ifndef SWIG
  void connect(meron_context_options &options) {
    table_ = initial(api().meron_transport_init);
    table_.name = named_ ? name_.c_str() : nullptr;
    table_.user = this;
    table_.max_message = unsigned_of<uint64_t>(max_message_, "max_message");
    table_.send = on_send;
    table_.receive = on_receive;
    table_.test = on_test;
    table_.cancel = on_cancel;
    table_.idle = on_idle;
    table_.alive = on_alive;
    table_.closed = on_closed;
    options.custom = &table_;
  }
#endif

 private:
#ifndef SWIG
  // What a method answered, as a status; what it threw its language has reported.
  template <class Method>
  static meron_status answer(void *self, uint64_t *out, Method method) noexcept {
    try {
      const int64_t value = method(*static_cast<custom_transport *>(self));
      if (value == -1) return MERON_IN_PROGRESS;
      if (value < 0) return static_cast<meron_status>(std::max<int64_t>(value, INT32_MIN));
      *out = static_cast<uint64_t>(value);
      return MERON_OK;
    } catch (...) {
      return MERON_E_IO;
    }
  }
  static meron_status on_send(void *self, uint64_t *request, int32_t peer, uint64_t tag,
                              const void *data, uint64_t bytes) noexcept {
    return answer(self, request, [&](custom_transport &transport) {
      const visible_memory message = {const_cast<void *>(data), bytes, false};
      return transport.send(peer, static_cast<int64_t>(tag), message);
    });
  }
  static meron_status on_receive(void *self, uint64_t *request, int32_t peer, uint64_t tag,
                                 void *data, uint64_t bytes) noexcept {
    return answer(self, request, [&](custom_transport &transport) {
      return transport.receive(peer, static_cast<int64_t>(tag), visible_memory{data, bytes, true});
    });
  }
  static meron_status on_test(void *self, uint64_t request, uint64_t *bytes) noexcept {
    return answer(self, bytes, [&](custom_transport &transport) {
      return transport.test(static_cast<int64_t>(request));
    });
  }
  static void on_cancel(void *self, uint64_t request) noexcept {
    uint64_t unused = 0;
    answer(self, &unused, [&](custom_transport &transport) {
      transport.cancel(static_cast<int64_t>(request));
      return int64_t{0};
    });
  }
  static void on_idle(void *self, int64_t timeout_ns) noexcept {
    uint64_t unused = 0;
    answer(self, &unused, [&](custom_transport &transport) {
      transport.idle(timeout_ns);
      return int64_t{0};
    });
  }
  // What cannot say that a rank is there moves nothing to it any more.
  static int32_t on_alive(void *self, int32_t peer) noexcept {
    uint64_t alive = 0;
    answer(self, &alive, [&](custom_transport &transport) {
      return int64_t{transport.alive(peer) ? 1 : 0};
    });
    return static_cast<int32_t>(alive);
  }
  static void on_closed(void *self) noexcept {
    uint64_t unused = 0;
    answer(self, &unused, [](custom_transport &transport) {
      transport.closed();
      return int64_t{0};
    });
  }

  bool named_;
  std::string name_;
  int64_t max_message_;
  meron_transport table_ = {};
#endif
};

}  // namespace meron_swig
%}
