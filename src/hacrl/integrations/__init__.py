"""hacrl inside other trainers."""
