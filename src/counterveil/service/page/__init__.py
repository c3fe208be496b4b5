"""The page of the service: its texts, templates, form, answers, and the routes that give them."""
