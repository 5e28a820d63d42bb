// SPDX-License-Identifier: Apache-2.0

// Command clusterctl is the command line of the cluster manager.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/management/api"
)

// version and commit are set with -ldflags "-X main.version=… -X main.commit=…".
var version, commit string

func main() {
	// The process is short-lived: even a list of ten thousand nodes is printed
	// before a garbage collection pays off.
	debug.SetGCPercent(1000)
	os.Exit(run())
}

func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		// nohup and background jobs of a shell ignore a signal on purpose.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}

	// The first signal detaches from a job, the second ends the process.
	go func() {
		<-signals
		cancel(clusterctl.ErrInterrupted)
		<-signals
		os.Exit(clusterctl.ExitInterrupted)
	}()

	return clusterctl.Run(ctx, os.Args, clusterctl.Options{Version: build()})
}

// build returns the version of this program: as set by the build, or else as
// recorded by Go.
func build() api.Version {
	v := api.Version{Version: version, Commit: commit}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Go = info.GoVersion
		if v.Version == "" {
			v.Version = info.Main.Version
		}

		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && v.Commit == "" {
				v.Commit = s.Value
			}
		}
	}

	if v.Version == "" {
		v.Version = "(devel)"
	}

	return v
}
