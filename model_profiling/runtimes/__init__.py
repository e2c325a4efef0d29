"""What users would use instead of ExecuTorch: each runtime a process that speaks the runner's protocol."""
