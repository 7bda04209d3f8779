"""gradkit names the line of your code where the gradient was lost."""
