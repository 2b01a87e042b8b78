// Put a bundle into src/main/assets first: edgesdk package MODEL --target android
plugins {
    alias(libs.plugins.android.application)
}

android {
    namespace = "dev.edgesdk.sample"
    compileSdk = 35

    defaultConfig {
        applicationId = "dev.edgesdk.sample"
        minSdk = 24
        targetSdk = 35
        versionCode = 1
        versionName = "0.1.0"
        ndk {
            abiFilters += listOf("arm64-v8a", "x86_64")
        }
    }

    buildTypes {
        release {
            isMinifyEnabled = true
            proguardFiles(getDefaultProguardFile("proguard-android-optimize.txt"))
            signingConfig = signingConfigs.getByName("debug") // to be tried out, not to be published
        }
    }

    // A compressed model can't be mapped into memory.
    androidResources {
        noCompress += listOf("edge")
    }

    sourceSets {
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
    implementation(project(":edgesdk"))
    compileOnly(libs.jspecify)
    implementation(libs.executorch)
    implementation(libs.fbjni)
    // For .onnx variants: implementation(libs.onnxruntime)
}
