# simstream_embed(OUT_FILE NAME FILE): a C file with the bytes of FILE as `const char NAME[]`, which
# ends with a zero.
function(simstream_embed out name file)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n    " bytes
                         "${bytes}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(RELATIVE_PATH shown ${CMAKE_SOURCE_DIR} ${file})
    file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
"// Generated from @shown@.
extern const char @name@[];
const char @name@[] = {
    @bytes@0,
};
")
endfunction()
