// Policy-engine serves the example of a policy engine for migrations.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/examples/policy-engine/engine"
)

func main() {
	address := flag.String("address", ":8080", "Address to listen on")
	cert := flag.String("tls-cert", "", "File of its certificate. Empty: it is served without TLS")
	key := flag.String("tls-key", "", "File of the certificate's key")
	e := engine.Default
	flag.Float64Var(&e.Keep, "keep", e.Keep, "Score, from 0 to 1, from which mission pods are not moved for cost, power or tidiness")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, &http.Server{
		Addr: *address, Handler: e.Handler(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}, *cert, *key); err != nil {
		log.Fatal(err)
	}
}

// serve until ctx ends, and then finish what is being answered.
func serve(ctx context.Context, server *http.Server, cert, key string) error {
	ended := make(chan error, 1)
	go func() {
		if cert == "" {
			ended <- server.ListenAndServe()
			return
		}
		ended <- server.ListenAndServeTLS(cert, key)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(last), ignoreClosed(<-ended))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
