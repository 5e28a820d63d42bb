// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
)

// Schema is the version of the stored data that this build reads and writes.
const Schema = "1"

// requestTimeout bounds every single request to the store.
const requestTimeout = 10 * time.Second

// Client is a connection to etcd, and the prefix below which everything is kept.
type Client struct {
	*clientv3.Client
	Prefix string // starts with a slash, ends without

	door   *clientv3.Client // by which tokens are asked for; nil: there is no user
	mu     sync.Mutex
	server server
	stop   context.CancelFunc
	tasks  sync.WaitGroup
}

// Dial connects to the etcd inside, waits until it answers, and checks the
// schema of what it holds. Data of a newer version is refused.
func Dial(ctx context.Context, prefix string, endpoints ...string) (*Client, error) {
	return connect(ctx, clientv3.Config{Endpoints: endpoints}, prefix, func(_ context.Context, c *Client) error {
		c.server.version = Version
		return nil
	}, nil)
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.stop != nil {
		c.stop()
	}

	c.tasks.Wait()

	err := c.Client.Close()
	if c.door != nil {
		err = errors.Join(err, c.door.Close())
	}

	return err
}

// connect tries until the store answers, or says something that will not mend
// itself; fit is asked before anything is written. The first failure is logged,
// where there is a log.
func connect(
	ctx context.Context,
	config clientv3.Config,
	prefix string,
	fit func(context.Context, *Client) error,
	log logrus.FieldLogger,
) (*Client, error) {
	config.Logger = zap.NewNop()
	config.DialTimeout = 5 * time.Second // for the first token, where there are users
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = 10*time.Second, 5*time.Second
	config.MaxCallSendMsgSize, config.MaxCallRecvMsgSize = maxRequestSize, 1<<30
	// A server that has gone is tried again soon: mostly it is near.
	config.DialOptions = []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay:  50 * time.Millisecond,
			Multiplier: 1.6,
			Jitter:     0.2,
			MaxDelay:   2 * time.Second,
		},
		MinConnectTimeout: 5 * time.Second,
	})}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var client *Client

	var known error // what is in the way
	for {
		err := func() error {
			if client == nil {
				c, err := open(config)
				if err != nil {
					return Error(err)
				}

				client, c.Prefix = c, prefix
			}

			if err := fit(ctx, client); err != nil {
				return err
			}

			return client.schema(ctx)
		}()
		if err == nil {
			return client, nil
		}

		hopeless := inventory.KindOf(err) != inventory.KindUnavailable || refusal(err) != ""
		if !hopeless {
			if why, never := diagnose(ctx, config); why != "" {
				err, hopeless = inventory.Errorf(inventory.KindUnavailable, "etcd does not answer: %s", why).
					Do("check etcd.endpoints, the certificate files, and whether the servers run"),
					never
			} else if ctx.Err() != nil && known != nil {
				err = known // that the time is over says less
			}

			known = err
		}

		if hopeless || ctx.Err() != nil {
			if client != nil {
				_ = client.Close()
			}

			return nil, err
		}

		if log != nil {
			log.WithError(err).Warnf("etcd does not answer yet; waiting for up to %s", startTimeout)
			log = nil
		}

		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// open makes a client. Where there is a user, it asks for tokens through a door
// of its own, which shows no token: a server before 3.5 that has restarted
// refuses whoever shows the old one, also when a new one is asked for.
func open(config clientv3.Config) (*Client, error) {
	c := &Client{}

	var err error
	if config.Username != "" {
		anonymous := config

		anonymous.Username, anonymous.Password = "", ""
		if c.door, err = clientv3.New(anonymous); err != nil {
			return nil, err
		}

		config.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if method == pb.Auth_Authenticate_FullMethodName {
					return c.door.ActiveConnection().Invoke(ctx, method, req, reply, opts...)
				}

				return next(ctx, method, req, reply, conn, opts...)
			},
		))
	}

	if c.Client, err = clientv3.New(config); err != nil && c.door != nil {
		_ = c.door.Close()
	}

	return c, err
}

// refusal is what to do where the store answers and does not let us in; "" for
// any other error.
func refusal(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "check etcd.user and what is in etcd.password_file"
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "it wants to know who asks: configure etcd.user and etcd.password_file"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "grant the user of clusterm a role that may read and write below etcd.prefix"
	}

	return ""
}

func (c *Client) schema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	key := c.Prefix + "/schema"

	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, Schema)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return Error(err)
	}

	if resp.Succeeded {
		return nil
	}

	if got := string(resp.Responses[0].GetResponseRange().Kvs[0].Value); got != Schema {
		return inventory.Errorf(inventory.KindRefused, "the stored data has version %s, this clusterm knows version %s", got, Schema).
			Do("start the clusterm that wrote it, or a newer one")
	}

	return nil
}

// Bounded is a context for one request to the store.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// Error gives an error of the client its kind.
func Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}

	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return inventory.Errorf(inventory.KindConflict, "%w", err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes: %w", err)
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return inventory.Errorf(inventory.KindTooLarge, "the store takes fewer operations in a transaction than clusterm has: %w", err).
			Do("raise max-txn-ops of the etcd servers to %d", MaxOps)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return inventory.Errorf(inventory.KindUnavailable, "the store has no space left: %w", err).
			Do("lower the retention of jobs, compact and defragment etcd, then disarm its alarm")
	}

	if remedy := refusal(err); remedy != "" {
		return inventory.Errorf(inventory.KindUnavailable, "the store refuses clusterm: %w", err).Do("%s", remedy)
	}

	code := status.Code(err)
	if code == codes.InvalidArgument && strings.Contains(err.Error(), "larger than max") ||
		code == codes.ResourceExhausted {
		return inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes: %w", err)
	}

	return inventory.Errorf(inventory.KindUnavailable, "the store does not answer: %w", err).
		Do("see the log of clusterm and the state of etcd")
}
