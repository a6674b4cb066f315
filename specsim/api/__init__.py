"""The calls behind the commands, frozen inputs to frozen results; ``import specsim`` has them."""
