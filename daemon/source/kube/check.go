package kube

// Files returns the kubeconfig and the files that it names, as far as it can be read.
func Files(kubeconfig string, allowExec bool) (out []string) {
	a, _ := loadKubeconfig(kubeconfig, allowExec) // Warnings returns the error
	for _, f := range a.files {
		out = append(out, f.path)
	}
	return out
}
