"""The only room that samples: noise for answers, seeds for experiments. It decides no scale."""
