// Pictures, read back by libpng and libjpeg-turbo themselves.
#include "tests/testing.h"

#include "common/media/picture.h"

#include <png.h>
#include <stdio.h>
#include <unistd.h>

#define W 37
#define H 23

static uint8_t rgb[H][W][3];

static void draw(void)
{
    int x, y;

    for (y = 0; y < H; y++)
        for (x = 0; x < W; x++) {
            rgb[y][x][0] = (uint8_t)(x * 6);
            rgb[y][x][1] = (uint8_t)(y * 11);
            rgb[y][x][2] = (uint8_t)(255 - x * 3 - y * 4);
        }
}

static const char *path(const char *name)
{
    static char buf[128];

    snprintf(buf, sizeof buf, "/tmp/test_picture.%d.%s", (int)getpid(), name);
    return buf;
}

static void png_is_lossless(void **state)
{
    uint8_t back[H][W][3];
    png_image image;

    (void)state;
    draw();
    assert_ok(picture_write(path("a.png"), &rgb[0][0][0], W, H, 0));
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    assert_true(png_image_begin_read_from_file(&image, path("a.png")));
    image.format = PNG_FORMAT_RGB;
    assert_int_equal(image.width, W);
    assert_int_equal(image.height, H);
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    assert_memory_equal(back, rgb, sizeof rgb);
    assert_int_equal(unlink(path("a.png")), 0);
}

static void jpeg_is_near(void **state)
{
    uint8_t back[H][W][3], *jpeg;
    double error = 0;
    size_t n, i;

    (void)state;
    draw();
    assert_ok(picture_to_jpeg(&jpeg, &n, &rgb[0][0][0], W, H, 95));
    assert_int_equal(jpeg[0], 0xff);
    assert_int_equal(jpeg[1], 0xd8);
    assert_ok(picture_from_jpeg(&back[0][0][0], W, H, jpeg, n));
    for (i = 0; i < sizeof rgb; i++)
        error += abs((&back[0][0][0])[i] - (&rgb[0][0][0])[i]);
    assert_true(error / sizeof rgb < 3);
    assert_true(error > 0);

    assert_fails(picture_from_jpeg(&back[0][0][0], H, W, jpeg, n), ST_INVAL, "expected 23 x 37");
    for (i = 0; i < n; i++) // cut off anywhere: an error or a picture, never a crash
        (void)!picture_from_jpeg(&back[0][0][0], W, H, jpeg, i);
    assert_fails(picture_from_jpeg(&back[0][0][0], W, H, jpeg, n / 2), ST_INVAL, "JPEG");
    mem_free(jpeg);
}

static void bad_requests(void **state)
{
    uint8_t *jpeg;
    size_t n;

    (void)state;
    assert_fails(picture_write(path("a.bmp"), &rgb[0][0][0], W, H, 90), ST_INVAL, ".png");
    assert_fails(picture_write(path("a.png"), &rgb[0][0][0], 0, H, 90), ST_INVAL, "0 x 23");
    assert_fails(picture_write(path("a.jpg"), &rgb[0][0][0], W, H, 101), ST_INVAL, "quality 101");
    assert_fails(picture_write("/no/such/folder/a.png", &rgb[0][0][0], W, H, 90), ST_IO,
                 "/no/such");
    mem_fail_after(0);
    assert_int_equal(picture_to_jpeg(&jpeg, &n, &rgb[0][0][0], W, H, 90), ST_NOMEM);
    mem_fail_after(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(png_is_lossless),
        leak_test(jpeg_is_near),
        leak_test(bad_requests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
