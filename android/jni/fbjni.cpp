// libfbjni.so: what com.facebook.jni.HybridData asks for. Android apps get the real one with the engine.
#include <jni.h>

#include "hybrid.h"

extern "C" JNIEXPORT void JNICALL
Java_com_facebook_jni_HybridData_00024Destructor_deleteNative(JNIEnv*, jclass, jlong pointer) {
  delete reinterpret_cast<edgesdk::Hybrid*>(pointer);
}
