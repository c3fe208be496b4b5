"""What is handed out: answers, sentences, pictures, pages."""
