"""From a model's logits to text."""
