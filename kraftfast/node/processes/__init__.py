"""Worker processes: started, watched, told what to do, and ended."""
