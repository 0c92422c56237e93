package cli

import "github.com/spf13/cobra"

func replayCommand(s Streams) *cobra.Command { return &cobra.Command{Use: "replay"} }
