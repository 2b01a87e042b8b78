// dev.edgesdk:edgesdk as an AAR: the plain-Java core of ../edgesdk and Android's layer in one.
plugins {
    alias(libs.plugins.android.library)
}

android {
    namespace = "dev.edgesdk"
    compileSdk = 35

    defaultConfig {
        minSdk = 24
        consumerProguardFiles("consumer-rules.pro")
    }

    sourceSets {
        getByName("main") {
            java.srcDirs("src/main/java", "../edgesdk/src/main/java")
        }
        // The tests of these sources are Maven's.
        getByName("test") {
            java.setSrcDirs(emptyList<String>())
            resources.setSrcDirs(emptyList<String>())
        }
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
}

dependencies {
    implementation(libs.tink)
    compileOnly(libs.jspecify)
    // Engines are the app's choice.
    compileOnly(libs.executorch)
    compileOnly(libs.fbjni)
    compileOnly(libs.onnxruntime)
    compileOnly(libs.pytorch.lite)
}
