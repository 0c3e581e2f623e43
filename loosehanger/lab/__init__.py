"""What a lab is: manifests read once into typed resources, and the record of what is set up."""
