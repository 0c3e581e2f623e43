// The kubelet's part of `kubectl port-forward`, for tests without a node: connections to a pod's port go to the same port
// of this machine's loopback interface, where the test runs the pod's program.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
)

const (
	idle   = time.Minute
	create = 30 * time.Second
)

type loopback struct{}

// PortForward connects a stream of a client with a port.
func (loopback) PortForward(_ context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer connection.Close()
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(stream, connection)
		done <- struct{}{}
	}()
	<-done
	return nil
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: port_forward ADDRESS CERTIFICATE KEY")
	}
	http.HandleFunc("/portForward/{namespace}/{pod}", func(writer http.ResponseWriter, request *http.Request) {
		options, err := portforward.NewV4Options(request)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(
			writer, request, loopback{}, request.PathValue("pod"), "", options, idle, create, portforward.SupportedProtocols,
		)
	})
	log.Fatal(http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], nil))
}
