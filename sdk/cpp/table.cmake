# A folder's files as a table: opdiff_table(TEMPLATE OUTPUT DECLARATION ENTRY FILES...) fills @declarations@ and @entries@ of
# the template with one line for each file, STEM replaced by its name without the suffix. Nobody keeps a list by hand.
function(opdiff_table template output declaration entry)
  foreach(file ${ARGN})
    get_filename_component(stem ${file} NAME_WE)
    string(REPLACE STEM ${stem} text "${declaration}")
    string(APPEND declarations "${text}\n")
    string(REPLACE STEM ${stem} text "${entry}")
    string(APPEND entries "${text}\n")
  endforeach()
  configure_file(${template} ${output} @ONLY)
endfunction()
