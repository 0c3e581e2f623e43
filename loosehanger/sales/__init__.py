"""What the shop sold, by product, region and time."""
