// Package kube has client-go's leader election on a Lease object of an API server.
//
// Follows https://pkg.go.dev/k8s.io/client-go/tools/leaderelection and the program
// https://github.com/kubernetes/client-go/blob/master/examples/leader-election/main.go.
//
//	k8s-lease                   --lease-ms, and the other times in the proportion of the defaults
//	k8s-lease-defaults          lease 15 s, renewal given up after 10 s, a try every 2 s: "core clients default"
//	k8s-lease-release           k8s-lease with ReleaseOnCancel, as in that program
//	k8s-lease-release-defaults  both
//
// --servers is the URL of an API server, with its token in --token-file (the server's certificate is then not
// verified), or kubeconfig:FILE.
//
// A request times out after half the renewal's time, as in resourcelock.NewFromKubeconfig.
//
// Fencing token: LeaseTransitions of the object, which this driver asks for; the page says that this implementation does no fencing.
// Reentrant: an elector runs once. Tells of a loss: by OnStoppedLeading. After a crash: another client takes over
// when it has seen the object unchanged for the lease.
package kube

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"lockkeeper/rivals/contract"
)

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	namespace = "default"
)

// Another life of this contender must not find the lease to be its own.
var life = uuid.NewString()

type system struct {
	options *contract.Options
	client  kubernetes.Interface
	cancel  context.CancelFunc
	ended   chan struct{}
}

// Connect makes the client, which connects when it is used.
func Connect(_ context.Context, o *contract.Options) (contract.System, error) {
	config, err := config(o)
	if err != nil {
		return nil, err
	}
	// As resourcelock.NewFromKubeconfig has it, so that one request that hangs leaves time for another one.
	_, renewal, _ := times(o)
	config.Timeout = max(time.Second, renewal/2)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &system{options: o, client: client}, nil
}

// The times of an elector: its own defaults, or the lease that all get with the others in the same proportion.
func times(o *contract.Options) (lease, renewal, retry time.Duration) {
	if strings.HasSuffix(o.System, "-defaults") {
		return leaseDuration, renewDeadline, retryPeriod
	}
	return o.Lease, o.Lease * 2 / 3, o.Lease * 2 / 15
}

func config(o *contract.Options) (*rest.Config, error) {
	if file, ok := strings.CutPrefix(o.Servers, "kubeconfig:"); ok {
		return clientcmd.BuildConfigFromFlags("", file)
	}
	return &rest.Config{
		Host:            o.Servers,
		BearerTokenFile: o.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, nil
}

// Calls are those of the first page. An elector runs once: its holder cannot take the Lease again. Run waits, as long as
// its context lasts; there is no other call, and none for several leaders.
func (s *system) Calls() map[string]string {
	return map[string]string{"again": "", "timed": "LeaderElector.Run with a deadline"}
}

// Probe runs for the Lease until the deadline.
func (s *system) Probe(ctx context.Context, _ string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := s.Acquire(ctx, func(string) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.cancel()
	// It has given up when Run has returned.
	<-s.ended
	return contract.ErrBusy
}

func (s *system) Acquire(ctx context.Context, lost func(string)) (*int64, error) {
	leading := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(s.config(leading, lost))
	if err != nil {
		return nil, err
	}
	var running context.Context
	running, s.cancel = context.WithCancel(context.Background())
	s.ended = make(chan struct{})
	go func() {
		elector.Run(running)
		close(s.ended)
	}()
	select {
	case <-leading:
		return s.transitions(ctx), nil
	case <-s.ended:
		return nil, errors.New("the election has ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *system) config(leading chan<- struct{}, lost func(string)) leaderelection.LeaderElectionConfig {
	started := make(chan struct{})
	lease, renewal, retry := times(s.options)
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: s.options.Lock, Namespace: namespace},
			Client:     s.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: s.options.Name + "_" + life},
		},
		LeaseDuration:   lease,
		RenewDeadline:   renewal,
		RetryPeriod:     retry,
		ReleaseOnCancel: strings.Contains(s.options.System, "-release"),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				close(started)
				close(leading)
			},
			// Also called when it never led.
			OnStoppedLeading: func() {
				select {
				case <-started:
					lost("OnStoppedLeading")
				default:
				}
			},
		},
	}
}

// The library does not tell it. Not known if the API server does not answer now.
func (s *system) transitions(ctx context.Context) *int64 {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	lease, err := s.client.CoordinationV1().Leases(namespace).Get(ctx, s.options.Lock, metav1.GetOptions{})
	if err != nil || lease.Spec.LeaseTransitions == nil {
		return nil
	}
	token := int64(*lease.Spec.LeaseTransitions)
	return &token
}

// Without ReleaseOnCancel the lease stays until it ends, if this client does not take it again before.
func (s *system) Release() error {
	s.cancel()
	<-s.ended
	return nil
}

func (s *system) Close() {
	if s.cancel != nil {
		s.cancel()
	}
}
