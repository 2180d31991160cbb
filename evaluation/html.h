// html.h - report.html: one file that shows an evaluation in a browser, from disk, without a
// network. The page is a template of this library (report_page.html) with the results in it as
// JSON.
//
// Threads: one at a time.
#ifndef EVALUATION_HTML_H
#define EVALUATION_HTML_H

#include "evaluation/summary.h"

// Write DIR/report.html. `r` is sorted.
NODISCARD enum status html_write(const struct results *r, const struct summary_about *about);

#endif
