// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-semver/semver"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/version"

	"github.com/contiv/cluster/inventory"
)

// Version is the version of the etcd that comes inside.
var Version = version.Version

const (
	oldest = "3.4.23" // that is taken: the oldest that the tests run against
	whole  = "3.6.14" // that has no known holes

	surveyEvery = time.Minute
)

// statusTime is for one member to say its version.
const statusTime = 3 * time.Second

// server is what is known of the servers of an etcd outside.
type server struct {
	version string // the lowest of all members that answered
	problem error  // why it cannot be used
	warning string // why it should not be
}

// judge says what a version of the server means: a problem, a warning, or nothing.
func judge(text string) (warning string, problem error) {
	v, err := semver.NewVersion(text)
	switch {
	case err != nil:
		return "", inventory.Errorf(inventory.KindRefused, "the etcd server says that its version is %q", text).
			Do("use an etcd server of version %s or later", oldest)
	case v.LessThan(*semver.New(oldest)):
		return "", inventory.Errorf(inventory.KindRefused, "the etcd server has version %s, which is too old: clusterm needs %s or later", v, oldest).
			Do("upgrade every member of it, best to %s or later", whole)
	case v.LessThan(*semver.New(whole)):
		return fmt.Sprintf(
			"the etcd server has version %s, which has known holes; upgrade every member to %s or later",
			v,
			whole,
		), nil
	}

	return "", nil
}

// lowest is the lowest of the versions; one that is none counts as the lowest.
func lowest(versions []string) string {
	return slices.MinFunc(versions, func(a, b string) int {
		v, aerr := semver.NewVersion(a)

		w, berr := semver.NewVersion(b)
		switch {
		case aerr != nil && berr != nil:
			return strings.Compare(a, b)
		case aerr != nil:
			return -1
		case berr != nil:
			return 1
		}

		return v.Compare(*w)
	})
}

// survey asks every member for its version: those of the configuration, and
// those that they name. Members that do not answer are left out.
func (c *Client) survey(ctx context.Context) (server, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()
	endpoints := slices.Clone(c.Endpoints())
	secure := strings.HasPrefix(endpoints[0], "https:")

	cluster := uint64(0)
	if members, err := c.MemberList(ctx); err == nil {
		cluster = members.Header.ClusterId
		for _, m := range members.Members {
			for _, u := range m.ClientURLs {
				if strings.HasPrefix(u, "https:") == secure && !slices.Contains(endpoints, u) {
					endpoints = append(endpoints, u)
				}
			}
		}
	}

	var (
		mu       sync.Mutex
		versions []string
		failed   error
		tasks    sync.WaitGroup
	)
	for _, endpoint := range endpoints {
		tasks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusTime)
			defer cancel()
			status, err := c.Status(ctx, endpoint)
			mu.Lock()
			defer mu.Unlock()

			if err != nil {
				failed = err
				return
			}

			if cluster == 0 ||
				status.Header.ClusterId == cluster { // a member may name an address that here is another's
				versions = append(versions, status.Version)
			}
		})
	}

	tasks.Wait()

	if len(versions) == 0 {
		return server{}, Error(cmp.Or(failed, errors.New("no member says its version")))
	}

	s := server{version: lowest(versions)}
	s.warning, s.problem = judge(s.version)

	return s, nil
}

// lookAfter asks again every minute: members come, go, and are replaced.
func (c *Client) lookAfter(ctx context.Context, log logrus.FieldLogger) {
	tick := time.NewTicker(surveyEvery)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		c.look(ctx, log)
	}
}

// look asks once, and says what has changed.
func (c *Client) look(ctx context.Context, log logrus.FieldLogger) {
	s, err := c.survey(ctx)
	if err != nil {
		return // it is said elsewhere that nobody answers
	}

	c.mu.Lock()
	changed := s.version != c.server.version
	c.server = s
	c.mu.Unlock()

	switch {
	case !changed:
	case s.problem != nil:
		log.Error(s.problem)
	case s.warning != "":
		log.Warn(s.warning)
	default:
		log.WithField("version", s.version).Info("the etcd server has another version")
	}
}

// Server is the lowest version among the members of the etcd, a warning about
// it or "", and why it cannot be used, where that is so.
func (c *Client) Server() (version, warning string, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.server.version, c.server.warning, c.server.problem
}
