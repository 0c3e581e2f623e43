"""Tools for people who work on the kit: run from the checkout, for ``openshift`` brings a package of this name, too."""
