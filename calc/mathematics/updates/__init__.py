"""What an optimizer's step does to one parameter, as equations: run in numpy, compared with torch's own steps, counted."""
