"""What reproduces the papers: their baselines, encoder, data and figures. The library never imports it."""
