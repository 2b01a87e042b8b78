// The library and the two apps, for Android Studio or Gradle 8.9 and newer. It brings no wrapper: gradle :sample:installDebug
pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositoriesMode.set(RepositoriesMode.FAIL_ON_PROJECT_REPOS)
    repositories {
        google()
        mavenCentral()
    }
}

rootProject.name = "edgesdk"
include(":edgesdk", ":sample", ":bench")
project(":edgesdk").projectDir = file("edgesdk-android")
