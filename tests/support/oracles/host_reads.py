"""What would wait for the device: the counter of the benchmarks."""

from support.oracles.benchmarks import benchmark_module

HostReads = benchmark_module("_host_reads").HostReads
