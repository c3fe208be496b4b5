"""From rules to what each person may do, and from any point to a legal row."""
