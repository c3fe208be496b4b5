"""`counterveil-lab fuzz`: damaged files and odd arguments against the real commands.

A small project (schema, table, veil, model, ledger, rules) is made once. Case n changes one of its
files, or the arguments, by random numbers that depend on the seed and on n alone, and runs a
command in a child process of its own. A case fails where the command does one of the following:

- it shows a traceback, or ends with a code that `docs/errors.md` does not give it (3 is a fault);
- it works for more than `run.LIMIT` seconds, or waits for something for as long (a process that
  only has to share the machine with others is not waiting);
- it takes more than `run.MEMORY` more than the process before it;
- it writes more than `judge.MOST_WORDS` on standard error, or a private value of the table;
- it changes an input, or leaves an output that is not whole, or any other file.

Networks learn from fewer samples here than usual; all else is as in the product.
"""
