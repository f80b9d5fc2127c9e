"""What the smoother is compared with at length: series of many kinds of noise, and smoothers beyond those of `benchmarks/denoising`."""
