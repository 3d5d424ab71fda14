"""How a life begins: which checkpoint it goes on from, what earlier lives bind it to, and which starts are refused."""
