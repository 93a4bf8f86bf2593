/*
 * Short connections, as netperf's TCP_CRR has them: connect, a question, an answer, close. In C, as Go's scheduler would have a part in what is
 * measured.
 *
 *	crr serve PORT              answers for ever
 *	crr ask ADDRESS PORT TIME   asks for that many seconds, and prints connections a second
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void serve(const struct sockaddr_in *at)
{
	int listening = socket(AF_INET, SOCK_STREAM, 0);
	char text[16];

	if (bind(listening, (const void *)at, sizeof(*at)) || listen(listening, 64))
		err(1, "listen");
	for (;;) {
		int c = accept(listening, NULL, NULL);

		if (c < 0)
			err(1, "accept");
		if (read(c, text, sizeof(text)) > 0 && write(c, "!\n", 2) == 2)
			(void)!read(c, text, sizeof(text)); /* until the client closes */
		close(c);
	}
}

static void ask(const struct sockaddr_in *to)
{
	int c = socket(AF_INET, SOCK_STREAM, 0);
	char text[16];

	if (connect(c, (const void *)to, sizeof(*to)) || write(c, "?\n", 2) != 2 || read(c, text, sizeof(text)) <= 0)
		err(1, "connection");
	close(c);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	double start = now(), asked = 0;

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		at.sin_port = htons(atoi(argv[2]));
		serve(&at);
	}
	if (argc != 5 || strcmp(argv[1], "ask") || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1)
		errx(2, "usage: crr serve PORT, or crr ask ADDRESS PORT TIME");
	at.sin_port = htons(atoi(argv[3]));
	for (; now() < start + atof(argv[4]); asked++)
		ask(&at);
	printf("%.2f\n", asked / (now() - start));
	return 0;
}
