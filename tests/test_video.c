// Films, read back by the programs ffprobe and ffmpeg; also of a writer that was killed.
#include "tests/testing.h"

#include "common/media/video.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FPS      20
#define FRAGMENT 5

static char path[128];

// Picture `i`: a grey ground that grows brighter, and a coloured square that moves.
static void draw(uint8_t *rgb, int w, int h, int i)
{
    int x, y, at = 4 + 2 * (i % 20);

    for (y = 0; y < h; y++)
        for (x = 0; x < w; x++) {
            uint8_t *p = rgb + 3 * (y * w + x);
            bool in = x >= at && x < at + 8 && y >= 4 && y < 12;

            p[0] = in ? 220 : (uint8_t)(40 + 3 * i);
            p[1] = in ? 30 : (uint8_t)(40 + 3 * i);
            p[2] = in ? 40 : (uint8_t)(40 + 3 * i);
        }
}

static void film(struct video *v, int w, int h, int first, int end)
{
    uint8_t *rgb = mem_alloc((size_t)w * (size_t)h, 3);
    int i;

    for (i = first; i < end; i++) {
        draw(rgb, w, h, i);
        assert_ok(video_append(v, rgb, 0));
    }
    mem_free(rgb);
}

static void command(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The output of a command, without its last newline.
static void command(char *out, size_t size, const char *format, ...)
{
    char line[512];
    va_list arguments;
    FILE *f;
    size_t n;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    f = popen(line, "r");
    assert_non_null(f);
    n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    assert_int_equal(pclose(f), 0);
    out[strcspn(out, "\n")] = '\0';
}

// What ffprobe sees: codec, size, rate, and the pictures that it could decode.
static void probe(char *out, size_t size)
{
    command(out, size,
            "ffprobe -v error -count_frames -select_streams v:0 -show_entries "
            "stream=codec_name,width,height,avg_frame_rate,nb_read_frames -of csv=p=0 %s",
            path);
}

static void compare_pictures(int w, int h, int n)
{
    size_t bytes = (size_t)w * (size_t)h * 3, k;
    uint8_t *want = mem_alloc(bytes, 1), *got = mem_alloc(bytes, 1);
    char line[512];
    FILE *f;
    int i;

    snprintf(line, sizeof line, "ffmpeg -v error -i %s -f rawvideo -pix_fmt rgb24 -", path);
    f = popen(line, "r");
    assert_non_null(f);
    for (i = 0; i < n; i++) {
        double error = 0;

        assert_int_equal(fread(got, 1, bytes, f), bytes);
        draw(want, w, h, i);
        for (k = 0; k < bytes; k++)
            error += abs(want[k] - got[k]);
        assert_true(error / (double)bytes < 3); // next picture's ground: 3 more, edges besides
    }
    assert_int_equal(fgetc(f), EOF);
    assert_int_equal(pclose(f), 0);
    mem_free(want);
    mem_free(got);
}

static void whole_film(void **state)
{
    struct video_format format = {64, 48, FPS, FRAGMENT};
    struct video *v;
    char seen[256];

    (void)state;
    assert_ok(video_open(&v, path, &format));
    film(v, 64, 48, 0, 33);
    assert_ok(video_close(v));
    probe(seen, sizeof seen);
    assert_string_equal(seen, "h264,64,48,20/1,33");
    compare_pictures(64, 48, 33);
    command(seen, sizeof seen, "ffprobe -v error -show_entries format=duration -of csv=p=0 %s",
            path);
    assert_close(atof(seen), 33.0 / FPS, 0, 1e-3);
}

// An odd side grows by one; a picture may be a window of a larger one.
static void odd_sides_and_strides(void **state)
{
    struct video_format format = {33, 17, FPS, 0};
    uint8_t rgb[17][64][3];
    struct video *v;
    char seen[256];

    (void)state;
    memset(rgb, 90, sizeof rgb);
    assert_ok(video_open(&v, path, &format));
    assert_ok(video_append(v, &rgb[0][0][0], sizeof rgb[0]));
    assert_ok(video_close(v));
    probe(seen, sizeof seen);
    assert_string_equal(seen, "h264,34,18,20/1,1");
}

// Killed at a picture that nobody chose: all full fragments are there.
static void survives_a_kill(void **state)
{
    struct video_format format = {64, 48, FPS, FRAGMENT};
    int pipe_fd[2], frames, status;
    char seen[256], byte;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipe_fd), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct video *v;

        close(pipe_fd[0]);
        if (video_open(&v, path, &format) != ST_OK)
            _exit(1);
        film(v, 64, 48, 0, 18);
        if (write(pipe_fd[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(1);
    }
    close(pipe_fd[1]);
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(pipe_fd[0]);
    probe(seen, sizeof seen);
    assert_int_equal(sscanf(seen, "h264,64,48,20/1,%d", &frames), 1);
    assert_int_equal(frames, 15); // of 18, three fragments of 5
    compare_pictures(64, 48, 15);
}

static void bad_requests(void **state)
{
    struct video_format format = {64, 48, FPS, 0}, bad = format;
    struct video *v;

    (void)state;
    bad.width = 8;
    assert_fails(video_open(&v, path, &bad), ST_INVAL, "8 x 48");
    bad = format;
    bad.fps = 0;
    assert_fails(video_open(&v, path, &bad), ST_INVAL, "0 pictures a second");
    assert_fails(video_open(&v, "/no/such/folder/a.mp4", &format), ST_IO, "/no/such/folder");
    mem_fail_after(1);
    assert_int_equal(video_open(&v, path, &format), ST_NOMEM);
    mem_fail_after(-1);
    assert_ok(video_close(NULL));
}

// A full disk is an error, at the latest when the film is closed.
static void full_disk(void **state)
{
    struct video_format format = {64, 48, FPS, FRAGMENT};
    struct video *v;

    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip();
    if (video_open(&v, "/dev/full", &format) == ST_OK)
        assert_fails(video_close(v), ST_IO, "/dev/full");
    else
        assert_int_equal(error_last()->code, ST_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(whole_film),      leak_test(odd_sides_and_strides),
        leak_test(survives_a_kill), leak_test(bad_requests),
        leak_test(full_disk),
    };
    struct video_format format = {64, 48, FPS, FRAGMENT};
    struct video *v;
    int failed;

    snprintf(path, sizeof path, "/tmp/test_video.%d.mp4", (int)getpid());
    if (video_open(&v, path, &format) == ST_MISSING) {
        print_message("skipped: %s\n", error_last()->text);
        return 77;
    }
    if (video_close(v) != ST_OK)
        print_message("an empty film: %s\n", error_last()->text);
    if (system("ffprobe -version >/dev/null 2>&1 && ffmpeg -version >/dev/null 2>&1") != 0) {
        print_message("skipped: no ffprobe and ffmpeg to read films with\n");
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
