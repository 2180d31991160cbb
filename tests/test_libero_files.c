// What a LIBERO task is made of: BDDL, tables, XML, init states, NumPy's numbers.
#include "tests/testing.h"

#include "scenes/libero/bddl.h"
#include "scenes/libero/init_states.h"
#include "scenes/libero/np_random.h"
#include "scenes/libero/spd.h"
#include "scenes/libero/tables.h"
#include "scenes/libero/xml.h"

#include <stdio.h>
#include <unistd.h>

// ------------------------------------------------------------------ BDDL

static enum status parse(struct bddl *b, const char *text)
{
    return bddl_parse(b, text, strlen(text), "x.bddl");
}

static void bddl_keeps_names_order_and_numbers(void **state)
{
    static const char text[] = "(define (problem My_Problem) ; a comment (\n"
                               "  (:domain robosuite) (:language Put  the Bowl\n on it)\n"
                               "  (:regions (left (:target table) (:ranges ((-0.1 0.2 0.3 4e-1))) "
                               "(:yaw_rotation ((-pi pi/2))))\n"
                               "            (inside (:target box_1)))\n"
                               "  (:fixtures table - table box_1 - box)\n"
                               "  (:objects b a - bowl c - cup)\n"
                               "  (:obj_of_interest a)\n"
                               "  (:init (On a table_left) (Open box_1_inside))\n"
                               "  (:goal (And (In a box_1_inside) (Not (On b c)))))\n";
    struct bddl b;

    (void)state;
    assert_ok(parse(&b, text));
    assert_string_equal(b.problem, "my_problem");
    assert_string_equal(b.language, "put the bowl on it");
    assert_int_equal(b.n_region, 2);
    assert_string_equal(b.regions[0].key, "table_left");
    assert_true(b.regions[0].has_range && !b.regions[1].has_range);
    assert_close(b.regions[0].range[3], 0.4, 0, 0);
    assert_close(b.regions[0].yaw[0], -M_PI, 0, 0);
    assert_close(b.regions[0].yaw[1], M_PI / 2, 0, 0);
    assert_int_equal(b.n_object, 3);
    assert_string_equal(b.objects[0].name, "b");
    assert_string_equal(b.objects[1].name, "a");
    assert_string_equal(b.objects[1].type, "bowl");
    assert_string_equal(b.objects[2].type, "cup");
    assert_int_equal(b.n_fixture, 2);
    assert_int_equal(b.n_init, 2);
    assert_string_equal(b.init[1].predicate, "open");
    assert_int_equal(b.n_goal, 2);
    assert_true(!b.goal[0].negated && b.goal[1].negated);
    assert_int_equal(b.goal[1].line, 10);
    bddl_fini(&b);
}

static void broken_bddl_is_refused_with_line_and_column(void **state)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"", "x.bddl:1:1: the file is empty"},
        {"(define", "x.bddl:1:1: this list is never closed"},
        {"(define (problem p)\n  (:goal (and (on a b))", "x.bddl:2:3: this list is never closed"},
        {"(define (problem p) (:goal (on a b))))", "x.bddl:1:38: ')' without '('"},
        {"(domain (problem p))", "expected (define ...)"},
        {"(define (problem p) (:goal (on a b))) x", "x.bddl:1:39: after the end"},
        {"(define (:goal (on a b)))", "no (problem NAME)"},
        {"(define (problem p))", "no (:goal ...)"},
        {"(define (problem p) (:gaol (on a b)))",
         "x.bddl:1:22: unknown or malformed section ':gaol'"},
        {"(define (problem p)\n(:objects a b))", "x.bddl:2:11: a type is missing after 'a'"},
        {"(define (problem p) (:objects a - ))", "expected NAME... - TYPE"},
        {"(define (problem p) (:objects - t))", "expected NAME... - TYPE"},
        {"(define (problem p) (:objects a - t a - u))", "the name is used twice: 'a'"},
        {"(define (problem p) (:objects a - t b - t))", "the type is listed twice: 't'"},
        {"(define (problem p) (:goal (or (on a b) (on b a))))", "not supported: 'or'"},
        {"(define (problem p) (:goal (forall x)))", "not supported: 'forall'"},
        {"(define (problem p) (:goal (on a b c d)))", "too many arguments"},
        {"(define (problem p) (:regions (r (:target t) (:ranges ((0 1 2))))))",
         "expected one rectangle"},
        {"(define (problem p) (:regions (r (:target t) (:ranges ((0 1 2 x))))))",
         "expected a number, found 'x'"},
        {"(define (problem p) (:regions (r (:target t) (:ranges ((0 1 2 inf))))))",
         "expected a number, found 'inf'"},
        {"(define (problem p) (:regions (r)))", "no (:target T)"},
        {"(define (problem p) (:regions (r (:colour red))))", "expected (:target T)"},
        {"(define (problem p) (:init on))", "expected (PREDICATE NAME...)"},
    };
    char *deep;
    struct bddl b;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(parse(&b, bad[i].text), ST_INVAL, bad[i].part);
    assert_fails(bddl_parse(&b, "(define\0)", 9, "x.bddl"), ST_INVAL, "byte 0");
    deep = mem_alloc(1001, 1);
    memset(deep, '(', 1000);
    assert_fails(parse(&b, deep), ST_INVAL, "nested too deeply");
    mem_free(deep);
    assert_fails(bddl_load(&b, "/absent/x.bddl"), ST_MISSING, "/absent/x.bddl");
}

// ------------------------------------------------------------------ tables

static enum status parse_tables(struct tables *t, const char *text)
{
    char copy[1024];

    snprintf(copy, sizeof copy, "%s", text);
    return tables_parse(t, copy, "x.tables");
}

static void tables_hold_categories_and_problems(void **state)
{
    struct tables t = {0};
    const struct category *c;
    const struct problem_class *p;
    bool exact;

    (void)state;
    assert_ok(parse_tables(&t, "# nothing\n\ncategory box a/box.xml rotate=z:0:1.5 open=lt:-0.1 "
                               "open_init=-0.2:-0.1 close=ge:0 # a comment\n"
                               "problem p arena=s/a.xml workspace=table token=main zone_body=top "
                               "offset=0,0,0.9 robot=mounted table=1,2,3 "
                               "camera=front:1,2,3:1,0,0,0\r\n"));
    c = tables_category(&t, "box");
    assert_non_null(c);
    assert_string_equal(c->file, "a/box.xml");
    assert_int_equal(c->axis[0], 2);
    assert_true(c->rules[JOINT_OPEN].less && c->rules[JOINT_OPEN].strict);
    assert_true(!c->rules[JOINT_CLOSE].less && !c->rules[JOINT_CLOSE].strict);
    assert_true(c->rules[JOINT_OPEN].has_init && !c->rules[JOINT_CLOSE].has_init);
    p = tables_problem(&t, "p", &exact);
    assert_non_null(p);
    assert_true(exact);
    assert_ptr_equal(tables_problem(&t, "p_light_3", &exact), p);
    assert_false(exact);
    assert_null(tables_problem(&t, "px", &exact));
    assert_true(p->mounted && p->sets_table && !p->shrink);
    assert_string_equal(p->cameras[0].name, "front");
    assert_close(p->friction[2], 3, 0, 0);
    assert_ok(parse_tables(&t, "category box b.xml\n")); // a later record replaces
    assert_int_equal(t.n_category, 1);
    assert_string_equal(tables_category(&t, "box")->file, "b.xml");
    assert_int_equal(tables_category(&t, "box")->n_rotate, 0);
    assert_null(tables_category(&t, "bo"));
    tables_fini(&t);
}

static void broken_tables_are_refused_with_their_line(void **state)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"\ncatgory box a.xml", "x.tables:2: 'catgory', expected 'category' or 'problem'"},
        {"category", "expected a name"},
        {"category box", "expected a shorter text"},
        {"category box a.xml rotate", "'rotate', expected KEY=VALUE"},
        {"category box a.xml rotate=w:0:1", "AXIS:LOW:HIGH"},
        {"category box a.xml rotate=x:0:1 rotate=y:0:1 rotate=z:0:1 rotate=x:0:1", "three times"},
        {"category box a.xml open=eq:1", "OP:NUMBER"},
        {"category box a.xml open=lt:nan", "OP:NUMBER"},
        {"category box a.xml open_init=1", "LOW:HIGH"},
        {"category box a.xml colour=red", "'colour', expected rotate"},
        {"problem p arena=a.xml", "arena, workspace, token and zone_body"},
        {"problem p arena=a.xml robot=flying", "expected mounted"},
        {"problem p offset=1,2", "numbers with commas"},
        {"problem p camera=c:1,2:1,0,0,0", "three numbers and four numbers"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tables t = {0};

        assert_fails(parse_tables(&t, bad[i].text), ST_INVAL, bad[i].part);
        tables_fini(&t);
    }
}

// ------------------------------------------------------------------ XML

static void xml_is_edited_and_written_again(void **state)
{
    static const char text[] = "<a x='1 &lt; 2'>A<b name='n'/><c><b name='m'/></c></a>";
    struct xml_doc doc;
    struct xml_node *root, *m, *copy;
    double reals[2] = {0.1, -1e300};

    (void)state;
    xml_init(&doc);
    assert_ok(xml_parse(&doc, text, strlen(text), "t", &root));
    assert_string_equal(xml_get(root, "x"), "1 < 2");
    m = xml_find(root, "b", "m");
    assert_non_null(m);
    assert_null(xml_child(root, "b", "m"));
    copy = xml_copy(&doc, xml_child(root, "c", NULL));
    xml_append(root, m); // from c to a
    xml_set_reals(&doc, m, "r", reals, 2);
    xml_unset(m, "name");
    xml_remove(xml_child(root, "b", "n"));
    assert_string_equal(xml_text(&doc, root),
                        "<a x=\"1 &lt; 2\">\n<c/>\n<b r=\"0.10000000000000001 "
                        "-1.0000000000000001e+300\"/>\n</a>\n");
    assert_string_equal(xml_text(&doc, copy), "<c>\n<b name=\"m\"/>\n</c>\n");
    assert_false(doc.failed);
    xml_fini(&doc);
}

static void broken_xml_is_refused_with_line_and_column(void **state)
{
    char deep[2000];
    struct xml_doc doc;
    struct xml_node *root;
    int i;

    (void)state;
    xml_init(&doc);
    assert_fails(xml_parse(&doc, "<a>\n<b></a>", 11, "x.xml", &root), ST_INVAL, "x.xml:2:");
    assert_fails(xml_parse(&doc, "", 0, "x.xml", &root), ST_INVAL, "x.xml:1:1");
    for (i = 0; i < 600; i += 3)
        memcpy(deep + i, "<a>", 3);
    memcpy(deep + i, "<b>", 4);
    assert_fails(xml_parse(&doc, deep, strlen(deep), "x.xml", &root), ST_INVAL, "too deeply");
    assert_fails(xml_load(&doc, "/absent.xml", &root), ST_MISSING, "/absent.xml");
    xml_fini(&doc);
}

// ------------------------------------------------------------------ init states

static void init_states_survive_a_round_trip(void **state)
{
    char path[] = "/tmp/simstream-init-XXXXXX", bytes[8192];
    struct init_states in = {.n_row = 3, .n_col = 300}, out;
    size_t n, cut;
    FILE *f;
    int fd = mkstemp(path), i;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    in.rows = mem_alloc(900, sizeof(double));
    for (i = 0; i < 900; i++)
        in.rows[i] = i % 7 ? sin(i) * 1e3 : 0;
    assert_ok(init_states_save(&in, path));
    assert_ok(init_states_load(&out, path));
    assert_int_equal(out.n_row, 3);
    assert_int_equal(out.n_col, 300);
    assert_memory_equal(in.rows, out.rows, 900 * sizeof(double));
    init_states_fini(&out);
    f = fopen(path, "rb");
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (cut = 0; cut < n && n == sizeof bytes; cut += 97) // a part of the file
        assert_int_not_equal(init_states_parse(&out, bytes, cut, "cut"), ST_OK);
    in.n_col = 0;
    assert_fails(init_states_save(&in, path), ST_INVAL, "3 x 0 init states");
    init_states_fini(&in);
    unlink(path);
}

static void what_is_no_init_state_file_is_refused(void **state)
{
    struct init_states s;

    (void)state;
    assert_fails(init_states_parse(&s, "", 0, "f"), ST_INVAL, "expected a ZIP archive");
    assert_fails(init_states_parse(&s, "PK\3\4 but nothing else, and long enough", 38, "f"),
                 ST_INVAL, "expected a ZIP archive");
    assert_fails(init_states_load(&s, "/absent.pruned_init"), ST_MISSING, "/absent.pruned_init");
    assert_fails(init_states_load(&s, "/dev/zero"), ST_IO, "expected a file");
}

// ------------------------------------------------------------------ numbers

// From NumPy 1.26: np.random.seed(7), five randn(), uniform(-1, 3).
static void numpys_generator_is_reproduced(void **state)
{
    static const double normal[] = {1.690525703800356, -0.4659373705408328, 0.0328201636785844,
                                    0.407516282996508, -0.7889230286257386};
    struct np_random r;
    int i;

    (void)state;
    np_seed(&r, 7);
    for (i = 0; i < 5; i++)
        assert_close(np_randn(&r), normal[i], 1e-15, 0);
    assert_close(np_uniform(&r, -1, 3), 0.07375592040748469, 1e-15, 0);
    np_seed(&r, 0);
    assert_close(np_unit(&r), 0.5488135039273248, 0, 0);
}

static void small_systems_are_solved_and_singular_ones_survive(void **state)
{
    double A[9] = {4, 1, 0, 1, 3, 1, 0, 1, 2}, b[3] = {1, 2, 3}, x[3], r;
    double S[4] = {1, 1, 1, 1}, y[2];
    int i;

    (void)state;
    spd_apply_inverse(A, 3, b, x);
    for (i = 0; i < 3; i++) {
        r = A[3 * i] * x[0] + A[3 * i + 1] * x[1] + A[3 * i + 2] * x[2];
        assert_close(r, b[i], 1e-14, 0);
    }
    spd_apply_inverse(S, 2, b, y); // pinv of a matrix of ones is a quarter of it
    assert_close(y[0], 0.75, 1e-14, 0);
    assert_close(y[1], 0.75, 1e-14, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(bddl_keeps_names_order_and_numbers),
        leak_test(broken_bddl_is_refused_with_line_and_column),
        leak_test(tables_hold_categories_and_problems),
        leak_test(broken_tables_are_refused_with_their_line),
        leak_test(xml_is_edited_and_written_again),
        leak_test(broken_xml_is_refused_with_line_and_column),
        leak_test(init_states_survive_a_round_trip),
        leak_test(what_is_no_init_state_file_is_refused),
        leak_test(numpys_generator_is_reproduced),
        leak_test(small_systems_are_solved_and_singular_ones_survive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
