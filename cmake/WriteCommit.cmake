# cmake -DSOURCE_DIR=... -DTEMPLATE=... -DOUTPUT=... -P WriteCommit.cmake
# Writes OUTPUT from TEMPLATE with the commit of SOURCE_DIR in it. Run at every build; OUTPUT is touched only when the
# commit is another one. A folder without .git of its own (an unpacked archive, perhaps inside somebody else's checkout)
# has no commit.
set(TERRACE_COMMIT unknown)
find_program(GIT_PROGRAM git)
if(GIT_PROGRAM AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(
    COMMAND ${GIT_PROGRAM} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE described RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed AND described MATCHES "^[0-9a-f]+(-dirty)?$")
    set(TERRACE_COMMIT ${described})
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
