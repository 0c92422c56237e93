package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/local"
	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
	"github.com/mainspring-rt/mainspring/pkg/localnode/image"
	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

func localCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run a local cluster with Mainspring, simulated machines and real nodes",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(localUp(s), localDown(s), localList(s), localImage(s), localImport(s), localServe(s))
	return cmd
}

func localUp(s Streams) *cobra.Command {
	settings := local.Settings{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster in the background and print how to use it",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := local.Up(cmd.Context(), clock.RealClock{}, settings, s.Err)
			if err != nil {
				return err
			}
			state.Tell(s.Out, kubectl(cmd, s.Err))
			return nil
		},
	}
	addLocalFlags(cmd, &settings)
	return cmd
}

func addLocalFlags(cmd *cobra.Command, o *local.Settings) {
	cmd.Flags().StringVar(&o.Dir, "dir", "", "`directory` for everything the cluster writes; empty: a new temporary one")
	cmd.Flags().StringVar(&o.Controller, "controller", "", "controller `binary` to run; empty: built from the checkout")
	cmd.Flags().StringVar(&o.Hollow, "hollow", "", "`binary` of the simulated nodes' agents to run; empty: built from the checkout")
	cmd.Flags().StringArrayVar(&o.ControllerArgs, "controller-arg", nil, "`argument` to add to the controller's; may be repeated")
	cmd.Flags().IntVar(&o.RealNodes, "real-nodes", 0, "`number` of real nodes that this machine is beside simulated ones, with kubelet, containerd and node agent; takes root and a core for each")
	cmd.Flags().DurationVar(&o.NodeMonitorGracePeriod, "node-monitor-grace-period", 0, "how long a kubelet may be silent until its node is not ready; 0: Kubernetes' default")
}

func localDown(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "down DIR",
		Short: "End a cluster and remove its files",
		Args:  oneArgument("the cluster's directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ended, err := local.Down(cmd.Context(), clock.RealClock{}, args[0])
			if err != nil {
				return err
			}
			if ended {
				fmt.Fprintf(s.Out, "the local cluster of %s had ended already; its files are removed\n", args[0])
				return nil
			}
			fmt.Fprintf(s.Out, "the local cluster of %s is gone\n", args[0])
			return nil
		},
	}
}

func localList(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Print the clusters that run in temporary directories",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			local.TellAll(s.Out, local.List(os.TempDir()))
			return nil
		},
	}
}

// localImage makes an image of binaries that are installed here.
func localImage(s Streams) *cobra.Command {
	made, output := image.Image{}, ""
	cmd := &cobra.Command{
		Use:   "image --reference NAME --output FILE PROGRAM...",
		Short: "Make an image of programs of this machine, with the libraries that they are linked with",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("%s wants the paths of programs, of which the first is the image's entry point", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if made.Reference == "" || output == "" {
				return usageError{fmt.Errorf("--reference is %q and --output is %q; want the image's name and a file to write", made.Reference, output)}
			}
			made.Installed = args
			if err := made.Save(output); err != nil {
				return err
			}
			fmt.Fprintf(s.Out, "%s has image %s\n", output, made.Reference)
			return nil
		},
	}
	cmd.Flags().StringVar(&made.Reference, "reference", "", "`name` of the image with its tag, for example example.test/redis:1")
	cmd.Flags().StringVar(&output, "output", "", "`file` that the image is written to, as an OCI archive")
	return cmd
}

// localImport hands images to real nodes.
func localImport(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "import DIR IMAGE.tar...",
		Short: "Import images, as OCI archives or from docker save, into the real nodes of a cluster",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("%s wants the cluster's directory and the files of images, but got %d arguments", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), importTimeout)
			defer cancel()
			paths, err := toolchain.Ensure(ctx, s.Err, toolchain.Ctr)
			if err != nil {
				return err
			}
			return local.Import(ctx, args[0], paths[toolchain.Ctr], args[1:], s.Out)
		},
	}
}

// importTimeout bounds an import, including building its program on a machine that has never built it.
const importTimeout = 15 * time.Minute

// localServe is what runs in the background.
func localServe(s Streams) *cobra.Command {
	settings := local.Settings{}
	cmd := &cobra.Command{
		Use:    "serve",
		Short:  "Run a cluster in the foreground until interrupted",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return local.Serve(cmd.Context(), stackOptions(settings, s.Err))
		},
	}
	addLocalFlags(cmd, &settings)
	return cmd
}

func stackOptions(s local.Settings, progress io.Writer) stack.Options {
	return stack.Options{
		Dir: s.Dir, Controller: s.Controller, Hollow: s.Hollow, ControllerArgs: s.ControllerArgs,
		NodeMonitorGracePeriod: s.NodeMonitorGracePeriod, RealNodes: s.RealNodes, Progress: progress,
	}
}

// kubectlTimeout bounds looking for kubectl, which the control plane's build has made already.
const kubectlTimeout = time.Minute

// kubectl is how to call kubectl: the one built with the control plane, or whatever is on the PATH.
func kubectl(cmd *cobra.Command, progress io.Writer) string {
	ctx, cancel := context.WithTimeout(cmd.Context(), kubectlTimeout)
	defer cancel()
	paths, err := toolchain.Ensure(ctx, progress, toolchain.Kubectl)
	if err != nil {
		return "kubectl"
	}
	return paths[toolchain.Kubectl]
}
