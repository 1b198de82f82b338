// SPDX-License-Identifier: Apache-2.0
// How Java spells text, memory and exceptions.

%{
namespace meron_swig {

// The bytes of a String (Text.java encodes them, NUL-terminated) as long as the call lasts.
class java_text {
 public:
  ~java_text() {
    if (bytes_) env_->ReleaseByteArrayElements(array_, bytes_, JNI_ABORT);
  }
  const char *take(JNIEnv *env, jbyteArray array) {
    env_ = env, array_ = array;
    bytes_ = array ? env->GetByteArrayElements(array, nullptr) : nullptr;
    if (array && !bytes_) throw std::bad_alloc();
    return reinterpret_cast<const char *>(bytes_);
  }

 private:
  JNIEnv *env_ = nullptr;
  jbyteArray array_ = nullptr;
  jbyte *bytes_ = nullptr;
};

// The items of an int[] as long as the call lasts.
class java_ints {
 public:
  ~java_ints() {
    if (items_) env_->ReleaseIntArrayElements(array_, items_, JNI_ABORT);
  }
  int32_array take(JNIEnv *env, jintArray array) {
    if (!array) return {nullptr, 0};
    env_ = env, array_ = array;
    items_ = env->GetIntArrayElements(array, nullptr);
    if (!items_) throw std::bad_alloc();
    return {reinterpret_cast<const int32_t *>(items_), size_t(env->GetArrayLength(array))};
  }

 private:
  JNIEnv *env_ = nullptr;
  jintArray array_ = nullptr;
  jint *items_ = nullptr;
};

// The items of a long[] as long as the call lasts.
class java_longs {
 public:
  ~java_longs() {
    if (items_) env_->ReleaseLongArrayElements(array_, items_, JNI_ABORT);
  }
  int64_array take(JNIEnv *env, jlongArray array) {
    if (!array) return {nullptr, 0};
    env_ = env, array_ = array;
    items_ = env->GetLongArrayElements(array, nullptr);
    if (!items_) throw std::bad_alloc();
    return {reinterpret_cast<const int64_t *>(items_), size_t(env->GetArrayLength(array))};
  }

 private:
  JNIEnv *env_ = nullptr;
  jlongArray array_ = nullptr;
  jlong *items_ = nullptr;
};

// Bytes per element of a java.nio.Buffer.
static size_t java_element(JNIEnv *env, jobject buffer) {
  static const struct {
    const char *name;
    size_t bytes;
  } kinds[] = {{"java/nio/ByteBuffer", 1},  {"java/nio/FloatBuffer", 4}, {"java/nio/ShortBuffer", 2},
               {"java/nio/CharBuffer", 2},  {"java/nio/IntBuffer", 4},   {"java/nio/LongBuffer", 8},
               {"java/nio/DoubleBuffer", 8}};
  for (const auto &kind : kinds) {
    jclass type = env->FindClass(kind.name);
    const bool is = type && env->IsInstanceOf(buffer, type);
    env->DeleteLocalRef(type);
    if (is) return kind.bytes;
  }
  return 1;
}

// A direct buffer from its first element to its capacity. (Memory.java has checked it.)
template <class Memory>
static Memory java_memory(JNIEnv *env, jobject buffer) {
  if (!buffer) return {nullptr, 0};
  void *data = env->GetDirectBufferAddress(buffer);
  if (!data) throw argument("the buffer is not a direct one");
  return {data, static_cast<size_t>(env->GetDirectBufferCapacity(buffer)) *
                    java_element(env, buffer)};
}

static jbyteArray java_bytes(JNIEnv *env, const char *text) {
  if (!text) return nullptr;
  const jsize length = static_cast<jsize>(std::strlen(text));
  jbyteArray array = env->NewByteArray(length);
  if (array) env->SetByteArrayRegion(array, 0, length, reinterpret_cast<const jbyte *>(text));
  return array;  // null: an OutOfMemoryError is pending
}

// Leaves a MeronException pending, or what making it failed with.
static void java_throw(JNIEnv *env, const failure &failed) {
  jclass type = env->FindClass("org/meron/MeronException");
  if (!type) return;
  jmethodID make =
      env->GetStaticMethodID(type, "of", "(I[B[B[B[BII)Lorg/meron/MeronException;");
  if (!make) return;
  jbyteArray texts[4] = {};
  const std::string *from[4] = {&failed.message, &failed.operation, &failed.subject,
                                &failed.advice};
  for (int i = 0; i < 4; ++i)
    if (!(texts[i] = java_bytes(env, from[i]->c_str()))) return;
  jobject made = env->CallStaticObjectMethod(type, make, jint(failed.code), texts[0], texts[1],
                                             texts[2], texts[3], jint(failed.rank),
                                             jint(failed.peer));
  if (made && !env->ExceptionCheck()) env->Throw(static_cast<jthrowable>(made));
}

}  // namespace meron_swig
%}

%exception {
  try {
    $action
  } catch (const meron_swig::failure &failed) {
    meron_swig::java_throw(jenv, failed);
    return $null;
  } catch (const std::exception &broken) {
    meron_swig::java_throw(jenv, {MERON_E_NO_MEMORY, broken.what(), "", "", "", -1, -1});
    return $null;
  }
}

// Values come from the compiled headers, when the class is initialized.
%javaconst(0);

// org.meron frees what these classes stand for; a finalizer would only come too late.
%typemap(javafinalize) SWIGTYPE ""

// The first use of anything here loads both libraries.
%pragma(java) jniclasscode=%{
  static {
    Loader.load();
  }
%}

// ---- Text: UTF-8 as bytes, because JNI's own strings hold NUL and emoji in a form of their own ------

%typemap(jni) const char *, char * "jbyteArray"
%typemap(jtype) const char *, char * "byte[]"
%typemap(jstype) const char *, char * "String"
%typemap(javain) const char *, char * "Text.encode($javainput)"
%typemap(javaout) const char *, char * {
    return Text.decode($jnicall);
  }
%typemap(in) const char * (meron_swig::java_text text) {
  $1 = const_cast<char *>(text.take(jenv, $input));
}
%typemap(freearg) const char *, char * ""
%typemap(out) const char *, char * "$result = meron_swig::java_bytes(jenv, $1);"
// One call of the library may make any number of callbacks: the guards leave no reference behind.
%typemap(directorin, descriptor="Ljava/lang/String;") const char * %{
  $input = meron_swig::java_bytes(jenv, $1);
  Swig::LocalRefGuard $1_guard(jenv, $input);
%}
%typemap(javadirectorin) const char * "Text.decode($jniinput)"

// ---- Integers and handles ---------------------------------------------------------------------------

%typemap(jni) meron_swig::int32_array "jintArray"
%typemap(jtype) meron_swig::int32_array "int[]"
%typemap(jstype) meron_swig::int32_array "int[]"
%typemap(javain) meron_swig::int32_array "$javainput"
%typemap(in) meron_swig::int32_array (meron_swig::java_ints items) {
  $1 = items.take(jenv, $input);
}
%typemap(jni) meron_swig::int64_array "jlongArray"
%typemap(jtype) meron_swig::int64_array "long[]"
%typemap(jstype) meron_swig::int64_array "long[]"
%typemap(javain) meron_swig::int64_array "$javainput"
%typemap(in) meron_swig::int64_array (meron_swig::java_longs items) {
  $1 = items.take(jenv, $input);
}

// ---- Memory: direct buffers; what the library hands out is a ByteBuffer ------------------------------

%typemap(jni) meron_swig::readable_memory, meron_swig::writable_memory, meron_swig::visible_memory
  "jobject"
%typemap(jtype) meron_swig::readable_memory, meron_swig::writable_memory "java.nio.Buffer"
%typemap(jstype) meron_swig::readable_memory, meron_swig::writable_memory "java.nio.Buffer"
%typemap(jtype) meron_swig::visible_memory "java.nio.ByteBuffer"
%typemap(jstype) meron_swig::visible_memory "java.nio.ByteBuffer"
%typemap(javain) meron_swig::readable_memory "Memory.readable($javainput)"
%typemap(javain) meron_swig::writable_memory "Memory.writable($javainput)"
%typemap(in) meron_swig::readable_memory, meron_swig::writable_memory {
  $1 = meron_swig::java_memory<$1_ltype>(jenv, $input);
}
%typemap(out) meron_swig::visible_memory {
  $result = jenv->NewDirectByteBuffer($1.data, static_cast<jlong>($1.bytes));
}
%typemap(javain) meron_swig::visible_memory "$javainput"
%typemap(in) meron_swig::visible_memory {
  $1 = meron_swig::java_memory<$1_ltype>(jenv, $input);
}
%typemap(directorin, descriptor="Ljava/nio/ByteBuffer;") meron_swig::visible_memory %{
  $input = jenv->NewDirectByteBuffer($1.data, static_cast<jlong>($1.bytes));
  Swig::LocalRefGuard $1_guard(jenv, $input);
%}
%typemap(javadirectorin) meron_swig::visible_memory "Memory.visible($jniinput)"
%typemap(javaout) meron_swig::visible_memory {
    return Memory.visible($jnicall);
  }
