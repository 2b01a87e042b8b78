package dev.edgesdk;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.List;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Clusters and threads, from sysfs as phones have it. */
public final class CpuTest {
  @Rule public final TemporaryFolder sysfs = new TemporaryFolder();

  private void core(int number, String file, long value) throws IOException {
    File at = new File(sysfs.getRoot(), "cpu" + number + "/" + file);
    assertTrue(at.getParentFile().isDirectory() || at.getParentFile().mkdirs());
    Files.writeString(at.toPath(), value + "\n");
  }

  private void cores(String file, long... values) throws IOException {
    for (int i = 0; i < values.length; i++) {
      core(i, file, values[i]);
    }
  }

  private Cpu read(int online) {
    return Cpu.read(sysfs.getRoot(), online);
  }

  @Test
  public void pitfall_a_10_fourBigAndFourSmallCores() throws IOException {
    cores("cpu_capacity", 250, 250, 250, 250, 1024, 1024, 1024, 1024);
    assertEquals(List.of(4, 5, 6, 7), read(8).clusters().get(0).cpus());
    assertEquals(List.of(0, 1, 2, 3), read(8).clusters().get(1).cpus());
    assertEquals(4, read(8).threads());
  }

  @Test
  public void pitfall_a_10_oneBiggestCoreIsNotMixedWithOthers() throws IOException {
    // Pixel 8 Pro: masks 100 / f0 / 0f.
    cores("cpu_capacity", 290, 290, 290, 290, 880, 880, 880, 880, 1024);
    assertEquals(List.of(8), read(9).clusters().get(0).cpus());
    assertEquals(1, read(9).threads());
  }

  @Test
  public void pitfall_a_10_eightEqualCoresGiveFourThreads() throws IOException {
    cores("cpu_capacity", 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024);
    assertEquals(1, read(8).clusters().size());
    assertEquals(4, read(8).threads());
  }

  @Test
  public void withoutCapacitiesTheFrequencyDecides() throws IOException {
    // Pixel 6: masks c0 / 30 / 0f.
    cores("cpufreq/cpuinfo_max_freq", 1803000, 1803000, 1803000, 1803000, 2253000, 2253000, 2802000, 2802000);
    core(3, "cpu_capacity", 124); // one core alone says nothing
    assertEquals(List.of(6, 7), read(8).clusters().get(0).cpus());
    assertEquals(Long.valueOf(2_802_000_000L), read(8).clusters().get(0).maxHz());
    assertEquals(2, read(8).threads());
  }

  @Test
  public void pitfall_a_10_unreadableFilesGiveHalfOfTheCores() throws IOException {
    assertEquals(4, read(8).threads());
    assertEquals(2, read(4).threads());
    assertEquals(1, read(1).threads());
    cores("cpu_capacity", 1024, 1024);
    Files.writeString(new File(sysfs.getRoot(), "cpu1/cpu_capacity").toPath(), "not a number\n");
    assertTrue(read(2).clusters().isEmpty());
    assertEquals(1, read(2).threads());
  }

  @Test
  public void thisMachineHasThreads() {
    assertTrue(Cpu.here().threads() >= 1 && Cpu.here().threads() <= 4);
  }
}
