/* Reading tests/golden: the keys of case.txt, and the arrays. Other folder:
   -DTEST_GOLDEN='"..."'. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "npy.h"
#include "test.h"

#ifndef TEST_GOLDEN
#define TEST_GOLDEN "tests/golden"
#endif

/* The value of a key in case.txt; 0 if there is no such key. */
NPY_DEF int case_value(const char *name, const char *key, char *value, size_t size) {
    char path[256], line[1024];
    size_t length = strlen(key);
    int found = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s/case.txt", TEST_GOLDEN, name);
    file = fopen(path, "r");
    if (!CHECK(file != NULL, "%s", path)) {
        return 0;
    }
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            snprintf(value, size, "%s", line + length + 1);
            value[strcspn(value, "\r\n")] = '\0';
            found = 1;
        }
    }
    fclose(file);
    return found;
}

NPY_DEF double case_number(const char *name, const char *key, double otherwise) {
    char value[64];
    return case_value(name, key, value, sizeof value) ? strtod(value, NULL) : otherwise;
}

NPY_DEF int case_says(const char *name, const char *key, const char *want) {
    char value[64];
    return case_value(name, key, value, sizeof value) && strcmp(value, want) == 0;
}

/* Arrays that the case does not list are empty. */
NPY_DEF int read_array(const char *name, const char *kind, const char *array, npy_array *data) {
    char path[256], text[64], key[64];
    const char *error;
    memset(data, 0, sizeof *data);
    snprintf(key, sizeof key, "%s.%s", kind, array);
    if (!case_value(name, key, text, sizeof text)) {
        return 0;
    }
    snprintf(path, sizeof path, "%s/%s/%s.npy", TEST_GOLDEN, name, array);
    error = npy_read(path, data);
    return CHECK(error == NULL, "%s: %s", path, error);
}

/* How many dimensions an input has; 0 if there is no such input. */
NPY_DEF int has(const char *name, const char *array) {
    npy_array data;
    int rank = read_array(name, "input", array, &data) ? data.rank : 0;
    npy_free(&data);
    return rank;
}

#endif
