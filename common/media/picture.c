#include "common/media/picture.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <png.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <turbojpeg.h>

static enum status check(int width, int height)
{
    if (width < 1 || height < 1 || width > PICTURE_SIDE_MAX || height > PICTURE_SIDE_MAX)
        return FAIL(ST_INVAL, "a picture of %d x %d: 1 to %d pixels a side can be written", width,
                    height, PICTURE_SIDE_MAX);
    return ST_OK;
}

static enum status to_png(uint8_t **out, size_t *n, const uint8_t *rgb, int width, int height)
{
    png_image image;
    png_alloc_size_t size;
    uint8_t *buf;

    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)width;
    image.height = (png_uint_32)height;
    image.format = PNG_FORMAT_RGB;
    size = PNG_IMAGE_PNG_SIZE_MAX(image);
    buf = mem_alloc(size, 1);
    if (!buf)
        return ST_NOMEM;
    if (!png_image_write_to_memory(&image, buf, &size, 0, rgb, 0, NULL)) {
        mem_free(buf);
        return FAIL(ST_IO, "libpng: %s", image.message);
    }
    *out = buf;
    *n = size;
    return ST_OK;
}

static enum status compress(tjhandle jpeg, uint8_t **out, size_t *n, const uint8_t *rgb, int width,
                            int height, int quality)
{
    unsigned long size = tjBufSize(width, height, TJSAMP_420);
    uint8_t *buf = mem_alloc(size, 1);

    if (!buf)
        return ST_NOMEM;
    if (tjCompress2(jpeg, rgb, width, 0, height, TJPF_RGB, &buf, &size, TJSAMP_420, quality,
                    TJFLAG_NOREALLOC) != 0) {
        mem_free(buf);
        return FAIL(ST_IO, "libjpeg-turbo: %s", tjGetErrorStr2(jpeg));
    }
    *out = buf;
    *n = size;
    return ST_OK;
}

enum status picture_to_jpeg(uint8_t **out, size_t *n, const uint8_t *rgb, int width, int height,
                            int quality)
{
    enum status st;
    tjhandle jpeg;

    TRY(check(width, height));
    if (quality < 1 || quality > 100)
        return FAIL(ST_INVAL, "JPEG quality %d: 1 to 100 is possible", quality);
    jpeg = tjInitCompress();
    if (!jpeg)
        return FAIL(ST_NOMEM, "libjpeg-turbo: %s", tjGetErrorStr2(NULL));
    st = compress(jpeg, out, n, rgb, width, height, quality);
    tjDestroy(jpeg);
    return st;
}

static enum status decompress(tjhandle jpeg, uint8_t *rgb, int width, int height,
                              const uint8_t *bytes, size_t n)
{
    int w, h, sampling, space;

    if (tjDecompressHeader3(jpeg, bytes, n, &w, &h, &sampling, &space) != 0)
        return FAIL(ST_INVAL, "not a JPEG: %s", tjGetErrorStr2(jpeg));
    if (w != width || h != height)
        return FAIL(ST_INVAL, "the JPEG is %d x %d, expected %d x %d", w, h, width, height);
    if (tjDecompress2(jpeg, bytes, n, rgb, w, 0, h, TJPF_RGB,
                      TJFLAG_STOPONWARNING | TJFLAG_ACCURATEDCT) != 0)
        return FAIL(ST_INVAL, "damaged JPEG: %s", tjGetErrorStr2(jpeg));
    return ST_OK;
}

enum status picture_from_jpeg(uint8_t *rgb, int width, int height, const uint8_t *bytes, size_t n)
{
    enum status st;
    tjhandle jpeg;

    TRY(check(width, height));
    jpeg = tjInitDecompress();
    if (!jpeg)
        return FAIL(ST_NOMEM, "libjpeg-turbo: %s", tjGetErrorStr2(NULL));
    st = decompress(jpeg, rgb, width, height, bytes, n);
    tjDestroy(jpeg);
    return st;
}

enum status picture_write(const char *path, const uint8_t *rgb, int width, int height, int quality)
{
    const char *dot = strrchr(path, '.');
    uint8_t *bytes;
    enum status st;
    size_t n;

    TRY(check(width, height));
    if (dot && strcasecmp(dot, ".png") == 0)
        TRY(to_png(&bytes, &n, rgb, width, height));
    else if (dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0))
        TRY(picture_to_jpeg(&bytes, &n, rgb, width, height, quality));
    else
        return FAIL(ST_INVAL, "%s: a picture's name ends in .png, .jpg or .jpeg", path);
    st = file_write_atomic(path, bytes, n);
    mem_free(bytes);
    return st;
}
