// Package main is all of Kubernetes in one executable, so that what its parts share is compiled and linked once. Its name says which part it is.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	part := filepath.Base(os.Args[0])
	if part == "coredns" {
		dnsserver.Directives = []string{"errors", "kubernetes", "template"}
		coremain.Run()
		return
	}
	command, known := commands[part]
	if !known {
		fmt.Fprintln(os.Stderr, "call this by the name of a part: kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl, coredns")
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
