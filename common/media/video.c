#include "common/media/video.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <dlfcn.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The functions that are used, by library; their types come from the headers, and the versions of
// the libraries too, since structs change with them.
// clang-format off
#define UTIL(X) \
    X(av_frame_alloc) X(av_frame_free) X(av_frame_get_buffer) X(av_frame_make_writable) \
    X(av_dict_set) X(av_dict_free) X(av_strerror) X(av_log_set_callback)
#define CODEC(X) \
    X(avcodec_find_encoder_by_name) X(avcodec_alloc_context3) X(avcodec_free_context) \
    X(avcodec_open2) X(avcodec_send_frame) X(avcodec_receive_packet) \
    X(avcodec_parameters_from_context) X(av_packet_alloc) X(av_packet_free) \
    X(av_packet_unref) X(av_packet_rescale_ts)
#define FORMAT(X) \
    X(avformat_alloc_output_context2) X(avformat_new_stream) X(avformat_write_header) \
    X(av_write_frame) X(av_write_trailer) X(avformat_free_context) X(avio_open) X(avio_closep) \
    X(avio_flush)
#define SCALE(X) \
    X(sws_getContext) X(sws_scale) X(sws_freeContext)
// clang-format on

#define MEMBER(name) __typeof__(&name) name;
static struct {
    UTIL(MEMBER) CODEC(MEMBER) FORMAT(MEMBER) SCALE(MEMBER)
} av;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

struct video {
    char *path;
    int width, height; // of the pictures that come in
    int fragment_frames;
    int64_t n_frame;
    AVFormatContext *file;
    AVCodecContext *codec;
    AVStream *stream; // of `file`
    AVFrame *frame;
    AVPacket *packet;
    struct SwsContext *convert;
};

// --- the libraries ------------------------------------------------------------------------------

struct entry {
    const char *name;
    void *slot;
};

#define ENTRY(name) {#name, &av.name},

static void on_message(void *who, int level, const char *format, va_list arguments)
{
    char text[256];

    (void)who;
    if (level > AV_LOG_WARNING)
        return;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    log_warn("video", "%s", text);
}

static enum status load_library(const char *stem, int version, const struct entry *entry, size_t n)
{
    void *library, *p;
    char name[64];
    size_t i;

    snprintf(name, sizeof name, "lib%s.so.%d", stem, version);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return FAIL(ST_MISSING, "a film needs %s, which is not there: install lib%s%d", name, stem,
                    version);
    for (i = 0; i < n; i++) {
        p = dlsym(library, entry[i].name);
        if (!p)
            return FAIL(ST_MISSING, "%s has no %s", name, entry[i].name);
        memcpy(entry[i].slot, &p, sizeof p);
    }
    return ST_OK;
}

static enum status load_libraries(void)
{
    static const struct entry util[] = {UTIL(ENTRY)}, codec[] = {CODEC(ENTRY)},
                              format[] = {FORMAT(ENTRY)}, scale[] = {SCALE(ENTRY)};

    TRY(load_library("avutil", LIBAVUTIL_VERSION_MAJOR, util, sizeof util / sizeof util[0]));
    TRY(load_library("avcodec", LIBAVCODEC_VERSION_MAJOR, codec, sizeof codec / sizeof codec[0]));
    TRY(load_library("avformat", LIBAVFORMAT_VERSION_MAJOR, format,
                     sizeof format / sizeof format[0]));
    TRY(load_library("swscale", LIBSWSCALE_VERSION_MAJOR, scale, sizeof scale / sizeof scale[0]));
    av.av_log_set_callback(on_message);
    return ST_OK;
}

static enum status load(void)
{
    enum status st = ST_OK;

    pthread_mutex_lock(&lock);
    if (!loaded)
        st = load_libraries();
    loaded = st == ST_OK;
    pthread_mutex_unlock(&lock);
    return st;
}

static enum status av_failed(const struct video *v, const char *what, int code)
{
    char reason[AV_ERROR_MAX_STRING_SIZE] = "?";

    (void)av.av_strerror(code, reason, sizeof reason);
    return FAIL(code == AVERROR(ENOMEM) ? ST_NOMEM : ST_IO, "film %s: %s: %s", v->path, what,
                reason);
}

// --- open ---------------------------------------------------------------------------------------

static enum status check(const struct video_format *f)
{
    if (f->width < VIDEO_SIDE_MIN || f->height < VIDEO_SIDE_MIN || f->width > VIDEO_SIDE_MAX ||
        f->height > VIDEO_SIDE_MAX)
        return FAIL(ST_INVAL, "a film of %d x %d: %d to %d pixels a side are possible", f->width,
                    f->height, VIDEO_SIDE_MIN, VIDEO_SIDE_MAX);
    if (f->fps < 1 || f->fps > 240)
        return FAIL(ST_INVAL, "a film of %d pictures a second: 1 to 240 are possible", f->fps);
    if (f->fragment_frames < 0)
        return FAIL(ST_INVAL, "fragments of %d pictures", f->fragment_frames);
    return ST_OK;
}

static enum status find_encoder(const AVCodec **out)
{
    static const char *const names[] = {"libx264", "libopenh264"};
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        *out = av.avcodec_find_encoder_by_name(names[i]);
        if (*out)
            return ST_OK;
    }
    return FAIL(ST_MISSING, "FFmpeg's libraries here have no H.264 encoder (libx264 or "
                            "libopenh264)");
}

// One thread and no look-ahead: a picture leaves the encoder at once, and the cores belong to the
// simulation.
static enum status open_encoder(struct video *v, int fps)
{
    const AVCodec *encoder;
    AVDictionary *options = NULL;
    AVCodecContext *c;
    int code;

    TRY(find_encoder(&encoder));
    c = v->codec = av.avcodec_alloc_context3(encoder);
    if (!c)
        return FAIL(ST_NOMEM, "no memory for an encoder");
    c->width = (v->width + 1) & ~1; // colours have half the resolution
    c->height = (v->height + 1) & ~1;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->colorspace = AVCOL_SPC_SMPTE170M; // what swscale makes of RGB
    c->color_range = AVCOL_RANGE_MPEG;
    c->time_base = (AVRational){1, fps};
    c->framerate = (AVRational){fps, 1};
    c->gop_size = v->fragment_frames;
    c->max_b_frames = 0;
    c->thread_count = 1;
    c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    av.av_dict_set(&options, "preset", "veryfast", 0);
    av.av_dict_set(&options, "tune", "zerolatency", 0);
    av.av_dict_set(&options, "crf", "23", 0);
    av.av_dict_set(&options, "sc_threshold", "0", 0); // key pictures at fragments only
    code = av.avcodec_open2(c, encoder, &options);
    av.av_dict_free(&options);
    return code < 0 ? av_failed(v, "H.264 encoder", code) : ST_OK;
}

static enum status open_file(struct video *v)
{
    AVDictionary *options = NULL;
    int code;

    code = av.avformat_alloc_output_context2(&v->file, NULL, "mp4", v->path);
    if (code < 0)
        return av_failed(v, "MP4 format", code);
    v->stream = av.avformat_new_stream(v->file, NULL);
    if (!v->stream)
        return FAIL(ST_NOMEM, "no memory for a film");
    v->stream->time_base = v->codec->time_base;
    v->stream->avg_frame_rate = v->codec->framerate;
    code = av.avcodec_parameters_from_context(v->stream->codecpar, v->codec);
    if (code >= 0)
        code = av.avio_open(&v->file->pb, v->path, AVIO_FLAG_WRITE);
    if (code < 0)
        return av_failed(v, "cannot be written", code);
    av.av_dict_set(&options, "movflags", "frag_custom+empty_moov+default_base_moof", 0);
    code = av.avformat_write_header(v->file, &options);
    av.av_dict_free(&options);
    if (code < 0)
        return av_failed(v, "header", code);
    av.avio_flush(v->file->pb);
    return ST_OK;
}

static enum status open_buffers(struct video *v)
{
    int code;

    v->frame = av.av_frame_alloc();
    v->packet = av.av_packet_alloc();
    v->convert =
        av.sws_getContext(v->width, v->height, AV_PIX_FMT_RGB24, v->width, v->height,
                          AV_PIX_FMT_YUV420P, SWS_BILINEAR | SWS_ACCURATE_RND, NULL, NULL, NULL);
    if (!v->frame || !v->packet || !v->convert)
        return FAIL(ST_NOMEM, "no memory for the pictures of a film");
    v->frame->format = v->codec->pix_fmt;
    v->frame->width = v->codec->width;
    v->frame->height = v->codec->height;
    v->frame->colorspace = v->codec->colorspace;
    v->frame->color_range = v->codec->color_range;
    code = av.av_frame_get_buffer(v->frame, 0);
    return code < 0 ? av_failed(v, "picture buffer", code) : ST_OK;
}

static void free_video(struct video *v)
{
    if (v->file && v->file->pb)
        av.avio_closep(&v->file->pb);
    if (v->file)
        av.avformat_free_context(v->file);
    if (v->codec)
        av.avcodec_free_context(&v->codec);
    if (v->frame)
        av.av_frame_free(&v->frame);
    if (v->packet)
        av.av_packet_free(&v->packet);
    if (v->convert)
        av.sws_freeContext(v->convert);
    mem_free(v->path);
    mem_free(v);
}

static enum status open_video(struct video *v, const char *path, const struct video_format *f)
{
    v->path = mem_strdup(path);
    if (!v->path)
        return ST_NOMEM;
    v->width = f->width;
    v->height = f->height;
    v->fragment_frames = f->fragment_frames ? f->fragment_frames : (f->fps + 1) / 2;
    TRY(open_encoder(v, f->fps));
    TRY(open_buffers(v));
    return open_file(v);
}

enum status video_open(struct video **out, const char *path, const struct video_format *format)
{
    struct video *v;
    enum status st;

    TRY(check(format));
    TRY(load());
    v = mem_alloc(1, sizeof *v);
    if (!v)
        return ST_NOMEM;
    st = open_video(v, path, format);
    if (st != ST_OK) {
        free_video(v);
        return st;
    }
    *out = v;
    return ST_OK;
}

// --- append -------------------------------------------------------------------------------------

// An odd picture leaves the last column or row of the even frame free: repeat its neighbour.
static void fill_edge(const struct video *v)
{
    uint8_t *luma = v->frame->data[0];
    size_t pitch = (size_t)v->frame->linesize[0];
    int y;

    if (v->codec->width > v->width)
        for (y = 0; y < v->height; y++)
            luma[(size_t)y * pitch + (size_t)v->width] =
                luma[(size_t)y * pitch + (size_t)v->width - 1];
    if (v->codec->height > v->height)
        memcpy(luma + (size_t)v->height * pitch, luma + (size_t)(v->height - 1) * pitch,
               (size_t)v->codec->width);
}

// Hand `frame` (NULL = the end) to the encoder and what comes out to the file.
static enum status encode(struct video *v, const AVFrame *frame)
{
    int code = av.avcodec_send_frame(v->codec, frame);

    if (code < 0)
        return av_failed(v, "encoding", code);
    for (;;) {
        code = av.avcodec_receive_packet(v->codec, v->packet);
        if (code == AVERROR(EAGAIN) || code == AVERROR_EOF)
            return ST_OK;
        if (code < 0)
            return av_failed(v, "encoding", code);
        v->packet->duration = 1;
        v->packet->stream_index = v->stream->index;
        av.av_packet_rescale_ts(v->packet, v->codec->time_base, v->stream->time_base);
        code = av.av_write_frame(v->file, v->packet);
        av.av_packet_unref(v->packet);
        if (code < 0)
            return av_failed(v, "writing", code);
    }
}

// End the fragment and give it to the system.
static enum status flush_fragment(struct video *v)
{
    int code = av.av_write_frame(v->file, NULL);

    if (code < 0)
        return av_failed(v, "writing", code);
    av.avio_flush(v->file->pb);
    return v->file->pb->error < 0 ? av_failed(v, "writing", v->file->pb->error) : ST_OK;
}

enum status video_append(struct video *v, const uint8_t *rgb, size_t stride)
{
    const uint8_t *const rows[] = {rgb};
    int strides[] = {(int)(stride ? stride : (size_t)v->width * 3)};
    int code = av.av_frame_make_writable(v->frame);

    if (code < 0)
        return av_failed(v, "picture buffer", code);
    av.sws_scale(v->convert, rows, strides, 0, v->height, v->frame->data, v->frame->linesize);
    fill_edge(v);
    v->frame->pts = v->n_frame++;
    TRY(encode(v, v->frame));
    return v->n_frame % v->fragment_frames == 0 ? flush_fragment(v) : ST_OK;
}

static enum status finish(struct video *v)
{
    int code;

    TRY(encode(v, NULL));
    TRY(flush_fragment(v));
    code = av.av_write_trailer(v->file);
    if (code < 0)
        return av_failed(v, "end", code);
    code = av.avio_closep(&v->file->pb);
    return code < 0 ? av_failed(v, "closing", code) : ST_OK;
}

enum status video_close(struct video *v)
{
    enum status st;

    if (!v)
        return ST_OK;
    st = finish(v);
    free_video(v);
    return st;
}
