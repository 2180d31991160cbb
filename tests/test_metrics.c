#include "tests/testing.h"

#include "common/base/crc.h"
#include "common/base/metrics.h"
#include "common/base/thread.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static char dir[64];

static int make_dir(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/simstream-metrics-XXXXXX");
    return mkdtemp(dir) ? leak_setup(state) : -1;
}

static int remove_dir(void **state)
{
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    return system(cmd) == 0 ? leak_teardown(state) : -1;
}

// The only file in `dir` whose name starts with `prefix`; its bytes are in `bytes`.
static uint8_t bytes[4096];
static size_t n_bytes;

static void read_file(const char *prefix)
{
    char path[PATH_MAX] = "";
    struct dirent *e;
    DIR *d = opendir(dir);
    int n = 0;
    FILE *f;

    assert_non_null(d);
    while ((e = readdir(d))) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0) {
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            n++;
        }
    }
    closedir(d);
    assert_int_equal(n, 1);
    f = fopen(path, "rb");
    assert_non_null(f);
    n_bytes = fread(bytes, 1, sizeof bytes - 1, f);
    bytes[n_bytes] = 0;
    fclose(f);
}

static uint32_t unmask(uint32_t masked)
{
    uint32_t rot = masked - 0xa282ead8u;

    return (rot >> 17) | (rot << 15);
}

// A cursor over protocol-buffer fields.
struct pb {
    const uint8_t *p, *end;
};

static uint64_t pb_varint(struct pb *b)
{
    uint64_t v = 0;
    int shift;

    for (shift = 0; shift < 64; shift += 7) {
        assert_true(b->p < b->end);
        v |= (uint64_t)(*b->p & 0x7f) << shift;
        if (!(*b->p++ & 0x80))
            return v;
    }
    fail_msg("varint is too long");
    return 0;
}

static struct pb pb_message(struct pb *b)
{
    uint64_t n = pb_varint(b);
    struct pb sub = {b->p, b->p + n};

    assert_true(n <= (uint64_t)(b->end - b->p));
    b->p = sub.end;
    return sub;
}

static void pb_fixed(struct pb *b, void *out, size_t n)
{
    assert_true((size_t)(b->end - b->p) >= n);
    memcpy(out, b->p, n);
    b->p += n;
}

// The next record's payload; its length and both sums are checked.
static struct pb next_record(size_t *at)
{
    uint64_t len;
    uint32_t sum;
    struct pb payload;

    assert_true(*at + 12 <= n_bytes);
    memcpy(&len, bytes + *at, 8);
    memcpy(&sum, bytes + *at + 8, 4);
    assert_int_equal(unmask(sum), crc32c(0, bytes + *at, 8));
    assert_true(*at + 12 + len + 4 <= n_bytes);
    payload = (struct pb){bytes + *at + 12, bytes + *at + 12 + len};
    memcpy(&sum, payload.end, 4);
    assert_int_equal(unmask(sum), crc32c(0, payload.p, len));
    *at += 12 + len + 4;
    return payload;
}

static void check_wall_time(struct pb *event)
{
    double t;

    assert_int_equal(pb_varint(event), 0x09);
    pb_fixed(event, &t, sizeof t);
    assert_true(fabs(t - clock_wall_s()) < 600);
}

static void check_value(struct pb *summary, const char *tag, float want)
{
    struct pb value, text;
    float got;

    assert_int_equal(pb_varint(summary), 0x0a);
    value = pb_message(summary);
    assert_int_equal(pb_varint(&value), 0x0a);
    text = pb_message(&value);
    assert_int_equal(text.end - text.p, strlen(tag));
    assert_memory_equal(text.p, tag, strlen(tag));
    assert_int_equal(pb_varint(&value), 0x15);
    pb_fixed(&value, &got, sizeof got);
    assert_true(got == want);
    assert_true(value.p == value.end);
}

static void metrics_write_makes_records_that_a_reader_accepts(void **state)
{
    const struct metric values[] = {{"train/return_mean", -12.5}, {"train/kl", NAN}, {"a", 0.1}};
    char long_tag[300];
    const struct metric one = {long_tag, 1e30};
    struct pb event, part;
    struct metrics *m;
    size_t at = 0;

    (void)state;
    memset(long_tag, 'x', sizeof long_tag - 1);
    long_tag[sizeof long_tag - 1] = '\0';
    assert_ok(metrics_open(&m, dir));
    assert_ok(metrics_write(m, 300, values, 3));
    assert_ok(metrics_write(m, 1LL << 40, &one, 1));
    assert_ok(metrics_write(m, 301, &values[1], 1)); // nothing to say: no event
    metrics_close(m);

    read_file("events.out.tfevents.");
    event = next_record(&at);
    check_wall_time(&event);
    assert_int_equal(pb_varint(&event), 0x1a);
    part = pb_message(&event);
    assert_int_equal(part.end - part.p, 13);
    assert_memory_equal(part.p, "brain.Event:2", 13);
    assert_true(event.p == event.end);

    event = next_record(&at);
    check_wall_time(&event);
    assert_int_equal(pb_varint(&event), 0x10);
    assert_int_equal(pb_varint(&event), 300);
    assert_int_equal(pb_varint(&event), 0x2a);
    part = pb_message(&event);
    check_value(&part, "train/return_mean", -12.5f);
    check_value(&part, "a", 0.1f);
    assert_true(part.p == part.end && event.p == event.end);

    event = next_record(&at);
    check_wall_time(&event);
    assert_int_equal(pb_varint(&event), 0x10);
    assert_true(pb_varint(&event) == 1ULL << 40);
    assert_int_equal(pb_varint(&event), 0x2a);
    part = pb_message(&event);
    check_value(&part, long_tag, 1e30f);
    assert_int_equal(at, n_bytes);
}

static void metrics_write_masks_the_sum_as_tensorboard_does(void **state)
{
    // the length 24 as an independent writer frames it
    static const uint8_t head[12] = {0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22};
    struct metrics *m;

    (void)state;
    assert_ok(metrics_open(&m, dir));
    metrics_close(m);
    read_file("events.out.tfevents.");
    assert_memory_equal(bytes, head, sizeof head);
}

static void metrics_write_adds_one_json_line_a_step(void **state)
{
    const struct metric values[] = {{"b/x", 0.1}, {"nan", NAN}, {"y", 3}};
    double t;
    struct metrics *m;

    (void)state;
    assert_ok(metrics_open(&m, dir));
    assert_ok(metrics_write(m, 7, values, 3));
    metrics_close(m);
    assert_ok(metrics_open(&m, dir)); // a second run goes on in the same file, in new events
    assert_ok(metrics_write(m, 8, values, 1));
    metrics_close(m);
    read_file("metrics.jsonl");
    assert_int_equal(sscanf((char *)bytes, "{\"step\": 7, \"wall_time\": %lf", &t), 1);
    assert_true(fabs(t - clock_wall_s()) < 600);
    assert_non_null(strstr((char *)bytes, ", \"b/x\": 0.1, \"y\": 3}\n{\"step\": 8, "));
    assert_string_equal((char *)bytes + n_bytes - 14, ", \"b/x\": 0.1}\n");
}

static void metrics_open_drops_the_half_line_of_a_crash(void **state)
{
    char path[PATH_MAX], long_line[700];
    struct metrics *m;
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    memset(long_line, 'z', sizeof long_line - 1);
    long_line[sizeof long_line - 1] = '\0';
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"step\": 1}\n{\"step\": 2, \"%s", long_line);
    fclose(f);
    assert_ok(metrics_open(&m, dir));
    metrics_close(m);
    read_file("metrics.jsonl");
    assert_string_equal((char *)bytes, "{\"step\": 1}\n");
}

static void metrics_write_names_the_file_when_the_disk_is_full(void **state)
{
    const struct metric value = {"a", 1};
    char path[PATH_MAX];
    struct metrics *m;

    (void)state;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_ok(metrics_open(&m, dir));
    assert_fails(metrics_write(m, 1, &value, 1), ST_IO, "/metrics.jsonl': No space left");
    metrics_close(m);
}

static void metrics_write_leaves_no_half_record(void **state)
{
    const struct metric value = {"a", 1};
    struct rlimit old, low;
    struct metrics *m;
    size_t at = 0;

    (void)state;
    assert_ok(metrics_open(&m, dir));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    // the line fits and is longer than the first record, the second record does not fit
    low = (struct rlimit){.rlim_cur = 66, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
    assert_fails(metrics_write(m, 1, &value, 1), ST_IO, "events.out.tfevents.");
    setrlimit(RLIMIT_FSIZE, &old);
    read_file("events.out.tfevents.");
    (void)next_record(&at);
    assert_int_equal(at, n_bytes);
    assert_ok(metrics_write(m, 2, &value, 1));
    read_file("events.out.tfevents.");
    (void)next_record(&at);
    assert_int_equal(at, n_bytes);
    metrics_close(m);
}

static void metrics_open_fails_cleanly(void **state)
{
    struct metrics *m = NULL;
    int64_t n;

    (void)state;
    assert_fails(metrics_open(&m, "/no/such/folder"), ST_IO, "/no/such/folder/metrics.jsonl");
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (metrics_open(&m, dir) == ST_OK)
            break;
        assert_null(m);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_true(n >= 2);
    metrics_close(m);
    metrics_close(NULL);
}

#define dir_test(fn) cmocka_unit_test_setup_teardown(fn, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        dir_test(metrics_write_makes_records_that_a_reader_accepts),
        dir_test(metrics_write_masks_the_sum_as_tensorboard_does),
        dir_test(metrics_write_adds_one_json_line_a_step),
        dir_test(metrics_open_drops_the_half_line_of_a_crash),
        dir_test(metrics_write_names_the_file_when_the_disk_is_full),
        dir_test(metrics_write_leaves_no_half_record),
        dir_test(metrics_open_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
