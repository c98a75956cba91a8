// Sends a message to an agent and follows it to its answer, over lost connections too.
//
//	protoc -I ../../../proto --go_out=gen --go_opt=paths=source_relative \
//	    --go_opt=Mholdfast/gateway/v1/messages.proto=holdfast.dev/example/gen/holdfast/gateway/v1 \
//	    --go-grpc_out=gen --go-grpc_opt=paths=source_relative \
//	    --go-grpc_opt=Mholdfast/gateway/v1/messages.proto=holdfast.dev/example/gen/holdfast/gateway/v1 \
//	    holdfast/gateway/v1/messages.proto
//	HOLDFAST_API_KEY=hf_… go run . hello
//
// HOLDFAST_GRPC is the address (127.0.0.1:18790). HOLDFAST_CA_FILE turns TLS on; it names a PEM file
// with the authority of the gateway's certificate, or is "system".
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "holdfast.dev/example/gen/holdfast/gateway/v1"
)

const tries = 8

func connect() (*grpc.ClientConn, error) {
	address := os.Getenv("HOLDFAST_GRPC")
	if address == "" {
		address = "127.0.0.1:18790"
	}
	switch authority := os.Getenv("HOLDFAST_CA_FILE"); authority {
	case "":
		return grpc.Dial(address, grpc.WithInsecure())
	case "system":
		return grpc.Dial(address, grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(nil, "")))
	default:
		roots, err := credentials.NewClientTLSFromFile(authority, "")
		if err != nil {
			return nil, err
		}
		return grpc.Dial(address, grpc.WithTransportCredentials(roots))
	}
}

// details returns the reason for programs, and the delay before the next try; 0 where there is none.
func details(err error) (reason string, delay time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = detail.Reason
		case *errdetails.RetryInfo:
			told := detail.RetryDelay
			delay = time.Duration(told.Seconds)*time.Second + time.Duration(told.Nanos)
		}
	}
	return reason, delay
}

// retrying makes a call until it succeeds, fails for good, or was tried often enough.
func retrying(call func() error) error {
	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil {
			return nil
		}
		reason, delay := details(err)
		code := status.Code(err)
		// A quota does not pass by itself: such an error has no delay.
		passes := code == codes.Unavailable || code == codes.DeadlineExceeded ||
			code == codes.ResourceExhausted && delay > 0
		if !passes || attempt == tries {
			return fmt.Errorf("%s: %w", reason, err)
		}
		if delay == 0 {
			delay = 200 * time.Millisecond << attempt
		}
		time.Sleep(delay)
	}
}

func ask(messages pb.MessagesClient, ctx context.Context, text string) (*pb.Done, error) {
	// With one id for all tries the message is accepted once, even if an acknowledgement is lost.
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	request := &pb.SendRequest{RequestId: hex.EncodeToString(id), Text: text}
	var sent *pb.SendResponse
	err := retrying(func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		sent, err = messages.Send(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	var done *pb.Done
	err = retrying(func() error {
		events, err := messages.Follow(ctx, &pb.FollowRequest{MessageId: sent.MessageId})
		if err != nil {
			return err
		}
		for {
			event, err := events.Recv()
			if errors.Is(err, io.EOF) {
				return status.Error(codes.Unavailable, "the stream ended before the answer")
			}
			if err != nil {
				return err
			}
			switch event := event.Event.(type) {
			case *pb.RunEvent_ToolStarted:
				fmt.Fprintf(os.Stderr, "[%s]\n", event.ToolStarted.Tool)
			case *pb.RunEvent_ApprovalRequested:
				asked := event.ApprovalRequested
				fmt.Fprintf(os.Stderr, "%s\nholdfast approvals allow %s\n", asked.Subject, asked.Slug)
			case *pb.RunEvent_Done:
				done = event.Done
				return nil
			}
		}
	})
	return done, err
}

func run() error {
	connection, err := connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	bearer := "Bearer " + os.Getenv("HOLDFAST_API_KEY")
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", bearer)
	done, err := ask(pb.NewMessagesClient(connection), ctx, strings.Join(os.Args[1:], " "))
	if err != nil {
		return err
	}
	if done.Outcome != pb.Outcome_OUTCOME_COMPLETED {
		return fmt.Errorf("%s: %s", done.Outcome, done.Reason)
	}
	fmt.Println(done.Text)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
