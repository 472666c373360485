/* SPDX-License-Identifier: Apache-2.0 */
/* The header in a program without exceptions (-fno-exceptions): results, and a call that aborts. */
#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.hpp>

#include "expect.hpp"

#ifndef YOKE_NO_EXCEPTIONS
#error "the header has not seen that there are no exceptions"
#endif

int main() {
    auto model = yoke::model::try_create("mlp", yoke::vector_shape(4));
    EXPECT(model);
    EXPECT(model->try_finish(model->input().linear("fc", 2)));
    auto none = yoke::model::try_create("mlp", yoke::vector_shape(-4));
    EXPECT(!none && none.status() == YOKE_ERROR_ARGUMENT && !none.text().empty());

    /* The value of a failed result: a text on stderr, and SIGABRT. */
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        std::fclose(stderr);
        yoke::model never = std::move(none).value();
        std::_Exit(0);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    std::puts("no exceptions: ok");
}
