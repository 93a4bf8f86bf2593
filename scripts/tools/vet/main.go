// Command vet runs the analyzers of go vet. Unlike go vet, it reads the types of dependencies from their source, so it
// does not compile the dependencies for every architecture.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/suite/vet"
)

func main() { multichecker.Main(vet.Suite...) }
